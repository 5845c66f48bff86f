"""GatedMLP on the GPU: the matrix kernels of Linear, with a second matrix."""

from dataclasses import dataclass, field

from ....builder.lowering.values import Values
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch
from ...linear.cuda.launches import Finish, Scratch, matrix_launches, rounds_inputs, scratch_of
from ..lower import GatedMlp, kernels


@dataclass
class GatedMlpCall(GatedMlp, CudaCall):
    """The launches of a matrix, and of a second one at once."""

    scratch: Scratch = field(init=False)

    def allocate(self, values: Values) -> None:
        self.scratch = scratch_of(values, self.weight, self.rows)

    def bf16_reads(self) -> list[View]:
        return [self.x] if rounds_inputs(self.weight) else []

    def writes(self) -> list[View]:
        return [*super().writes(), *self.scratch.views]

    def launches(self, context: Context) -> list[Launch]:
        finish = Finish(self.gate_bias, self.up_bias, None, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


KERNELS = kernels(GatedMlpCall)
