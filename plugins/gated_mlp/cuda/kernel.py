"""GatedMLP on the GPU: the matrix kernels of Linear, with a second matrix."""

from dataclasses import dataclass

from ....builder.targets.cuda.source.call import Choice, Context, Launch
from ...linear.cuda.launches import Finish, MatrixCall, matrix_launches
from ..lower import GatedMlp, kernels


@dataclass
class GatedMlpCall(GatedMlp, MatrixCall):
    """The launches of a matrix, and of a second one at once."""

    def launches(self, context: Context) -> list[Launch | Choice]:
        finish = Finish(self.gate_bias, self.up_bias, None, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


KERNELS = kernels(GatedMlpCall)
