"""What writes in place becomes what makes new tensors, and computes the same."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from enginesmith.builder.trace.in_place import replace_in_place


class Program(nn.Module):
    def __init__(self, operation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(x)


def normalised_top(x: Tensor) -> Tensor:
    top, _ = torch.topk(x, 2, dim=-1)
    top /= top.sum(-1, keepdim=True)
    return top * 2


def several(x: Tensor) -> Tensor:
    y = x.exp()
    before = y.sum()
    y.mul_(2).add_(1.0)
    return y.neg() + before


def seen_by_a_view(x: Tensor) -> Tensor:
    y = x.exp()
    view = y.view(-1)
    y.add_(1.0)
    return view * 2


def into_a_view(x: Tensor) -> Tensor:
    y = x.exp()
    y[0].add_(1.0)
    return y


def into_the_input(x: Tensor) -> Tensor:
    x.add_(1.0)
    return x * 2


def widened(x: Tensor) -> Tensor:
    y = x.exp().half()
    y.add_(x)
    return y


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        (normalised_top, 0), (several, 0), (seen_by_a_view, 1), (into_a_view, 1), (into_the_input, 1), (widened, 1),
    ],
)  # fmt: skip
def test_what_is_replaced(operation: Callable[[Tensor], Tensor], left: int):
    x = torch.tensor([[1.0, 3.0, 2.0], [0.5, 0.0, -1.0]])
    program = torch.export.export(Program(operation), (x.clone(),), strict=False)
    replace_in_place(program)
    program.graph.lint()
    program.graph_module.recompile()
    operators = [node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert sum(operator._schema.is_mutable for operator in operators) == left
    torch.testing.assert_close(program.module()(x.clone()), operation(x.clone()))
