"""SoftCap on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from enginesmith.builder.lowering.kernels import Kernel
from enginesmith.builder.lowering.lowering import Lowering
from enginesmith.builder.lowering.nodes import parsed, path_of
from enginesmith.builder.lowering.views import View
from enginesmith.builder.targets.cpu.source.call import CpuCall
from enginesmith.builder.targets.cpu.source.spelling import float_literal, size
from enginesmith.builder.targets.cpu.source.writer import Writer


@dataclass
class SoftCapCall(CpuCall):
    """y [M, D] = cap * tanh(x / cap)."""

    x: View
    y: View
    cap: float

    header = "softcap_plugin/cpu/softcap.h"

    def reads(self) -> list[View]:
        return [self.x]

    def writes(self) -> list[View]:
        return [self.y]

    def write(self, out: Writer) -> None:
        rows, width = self.x.shape
        out.add(
            f"  softcap::softcap<{width.count}>(pool, {out.rows(self.x)}, {out.rows(self.y)}, {size(rows)}, "
            f"{float_literal(self.cap)});"
        )


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x,), attributes = parsed(node)
    values, out = lowering.values, node.outputs[0]
    rows, y = values.matrix(values.view(x)), values.new(out)
    values.emit(SoftCapCall(path_of(node), rows, values.matrix(y), attributes.cap))
    values.assign(out, y)


KERNELS = (Kernel("SoftCap", _lower),)
