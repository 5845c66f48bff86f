"""Element-wise expressions: what is computed for one element, as a graph of operations over views and numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .dims import Shape
from .views import DType, View


@dataclass(frozen=True)
class Scalar:
    """A number known at build time."""

    value: float | int | bool
    dtype: DType


@dataclass(eq=False)
class Expr:
    """An operation on operands that broadcast to `shape`. `op` is one of OPS; "load" and "cast" are identities."""

    op: str
    args: "tuple[Operand, ...]"
    dtype: DType
    shape: Shape = field(repr=False)

    @property
    def is_cheap(self) -> bool:
        """Whether computing it for every element of a larger shape costs less than storing it."""
        return self.op in ("load", "cast") and not any(isinstance(arg, Expr) for arg in self.args)

    def walk(self) -> "Iterator[Expr]":
        """This expression and all below it, operands first, each once."""
        seen: set[int] = set()

        def visit(expr: Expr) -> Iterator[Expr]:
            if id(expr) in seen:
                return
            seen.add(id(expr))
            for arg in expr.args:
                if isinstance(arg, Expr):
                    yield from visit(arg)
            yield expr

        return visit(self)

    def leaves(self) -> list[View]:
        return [arg for expr in self.walk() for arg in expr.args if isinstance(arg, View)]


Operand = Expr | View | Scalar

_OF_OPERANDS = (
    "load", "add", "sub", "mul", "div", "neg", "abs", "min", "max", "relu", "sign", "where", "cast", "bit_and",
    "bit_or", "bit_not",
)  # fmt: skip
_OF_FLOATS = (
    "pow", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "erf", "floor", "ceil", "round",
    "sigmoid", "gelu", "gelu_tanh", "softplus",
)  # fmt: skip
_OF_BOOLS = (
    "equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor", "not",
)  # fmt: skip
OPS: Mapping[str, DType | None] = {
    **dict.fromkeys(_OF_OPERANDS, None),
    **dict.fromkeys(_OF_FLOATS, DType.F32),
    **dict.fromkeys(_OF_BOOLS, DType.BOOL),
}
"""Every operation of an expression, and the type of its result; None: the type of its operands."""
