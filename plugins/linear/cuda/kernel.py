"""Linear on the GPU."""

from dataclasses import dataclass

from ....builder.targets.cuda.source.call import Choice, Context, Launch
from ..lower import Linear, kernels
from .launches import Finish, MatrixCall, matrix_launches


@dataclass
class LinearCall(Linear, MatrixCall):
    """The launches of one matrix."""

    def launches(self, context: Context) -> list[Launch | Choice]:
        finish = Finish(self.bias, None, self.residual, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


KERNELS = kernels(LinearCall)
