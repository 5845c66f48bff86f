"""Which linear layers decide where a token goes."""

import onnx_ir as ir

from ..operations import traits_of


def is_router(value: ir.Value) -> bool:
    """Whether a TopK picks by the value, with nothing that multiplies matrices in between: a router of experts."""
    seen, pending = {value}, [value]
    while pending:
        for node in pending.pop().consumers():
            if node.op_type == "TopK":
                return True
            if traits_of(node).is_matmul:
                continue
            fresh = [out for out in node.outputs if out not in seen]
            seen.update(fresh)
            pending += fresh
    return False
