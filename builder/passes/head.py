"""Which linear layer makes the logits."""

import onnx_ir as ir

from ..operations import traits_of


def makes_logits(value: ir.Value) -> bool:
    """Whether nothing that multiplies matrices stands between the value and the network's output."""
    seen, pending = {value}, [value]
    while pending:
        for node in pending.pop().consumers():
            if traits_of(node).is_matmul:
                return False
            fresh = [out for out in node.outputs if out not in seen]
            seen.update(fresh)
            pending += fresh
    return True
