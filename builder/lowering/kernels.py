"""How operations are lowered: a kernel an operation, of the plugins for a target, and of the standard ones for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...plugins.plugin import DOMAIN
from .lowering import Lowering

Lower = Callable[[Lowering, ir.Node], None]


@dataclass(frozen=True)
class Kernel:
    """How a node of one operation is lowered.

    `data_inputs`: the inputs that the kernel reads from memory in a step (None: all); the others are constants such as
    axes, read at build time. `takes`: a condition on nodes; the first kernel that takes a node lowers it.
    """

    operation: str
    lower: Lower
    domain: str = DOMAIN
    data_inputs: tuple[int, ...] | None = None
    takes: Callable[[Lowering, ir.Node], bool] | None = None


class Kernels:
    """The kernels that a target has; earlier ones come first."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._by_operation: dict[tuple[str, str], list[Kernel]] = {}
        for kernel in kernels:
            self._by_operation.setdefault((kernel.domain, kernel.operation), []).append(kernel)

    @property
    def operations(self) -> set[tuple[str, str]]:
        """(domain, name) of every operation that can be lowered."""
        return set(self._by_operation)

    def find(self, lowering: Lowering, node: ir.Node) -> Kernel | None:
        """The kernel that lowers the node."""
        return next((k for k in self._of(node) if k.takes is None or k.takes(lowering, node)), None)

    def has(self, node: ir.Node) -> bool:
        return bool(self._of(node))

    def needs_as_data(self, node: ir.Node, index: int) -> bool:
        """Whether some kernel reads that input of the node from memory."""
        kernels = self._of(node)
        return not kernels or any(k.data_inputs is None or index in k.data_inputs for k in kernels)

    def _of(self, node: ir.Node) -> list[Kernel]:
        return self._by_operation.get((node.domain.removeprefix("ai.onnx"), node.op_type), [])


STANDARD: list[Kernel] = []
"""Kernels of standard ONNX operations, which become loops and views: filled by elementwise, loops and reshapes."""


def lowers(*operations: str, data: tuple[int, ...] | None = None) -> Callable[[Lower], Lower]:
    """Register a kernel for these standard operations; `data` is its `data_inputs`."""

    def register(lower: Lower) -> Lower:
        STANDARD.extend(Kernel(operation, lower, "", data) for operation in operations)
        return lower

    return register
