"""Which activations lie in memory as bf16: those that every reader rounds to bf16 anyway.

So where a value lies changes no bit of a result: it is rounded once, when it is stored instead of when it is loaded.
Sums of residuals, inputs of rotary embeddings, and whatever a generated kernel reads stay float32, as do the logits.
"""

from ...lowering.program import Program
from ...lowering.views import Buffer, DType, Home
from .source.call import CudaCall


def narrow(program: Program) -> None:
    """Make those buffers bf16."""
    read: set[Buffer] = set()
    wide = {program.logits.buffer} if program.logits is not None else set()
    for call in program.calls:
        rounded = {id(view) for view in call.bf16_reads()} if isinstance(call, CudaCall) else set()
        for view in call.reads():
            read.add(view.buffer)
            if id(view) not in rounded:
                wide.add(view.buffer)
    for buffer in read - wide:
        if buffer.home is Home.ARENA and buffer.dtype is DType.F32:
            buffer.dtype = DType.BF16
