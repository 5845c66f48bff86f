"""Linear on the GPU."""

from dataclasses import dataclass, field

from ....builder.lowering.values import Values
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch
from ..lower import Linear, kernels
from .launches import Finish, Scratch, matrix_launches, rounds_inputs, scratch_of


@dataclass
class LinearCall(Linear, CudaCall):
    """The launches of one matrix."""

    scratch: Scratch = field(init=False)

    def allocate(self, values: Values) -> None:
        self.scratch = scratch_of(values, self.weight, self.rows)

    def bf16_reads(self) -> list[View]:
        return [self.x] if rounds_inputs(self.weight) else []

    def writes(self) -> list[View]:
        return [*super().writes(), *self.scratch.views]

    def launches(self, context: Context) -> list[Launch]:
        finish = Finish(self.bias, None, self.residual, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


KERNELS = kernels(LinearCall)
