"""Element-wise expressions: what is computed for one element, as a graph of operations over views and numbers."""

from collections.abc import Iterator
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
    """An operation on operands that broadcast to `shape`. `op` is a key of FORMS; "load" and "cast" are identities."""

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


@dataclass(frozen=True)
class Form:
    """How an operation is written in C++. `result` None: the type of the operands."""

    scalar: str
    result: DType | None = None
    vector: str | None = None  # over VF, where every operand is float


def _function(name: str, vector: bool = False) -> Form:
    return Form(f"std::{name}({{0}})", DType.F32, f"es::{name}({{0}})" if vector else None)


FORMS: dict[str, Form] = {
    "load": Form("{0}", None, "{0}"),
    "add": Form("{0} + {1}", None, "{0} + {1}"),
    "sub": Form("{0} - {1}", None, "{0} - {1}"),
    "mul": Form("{0} * {1}", None, "{0} * {1}"),
    "div": Form("{0} / {1}", None, "{0} / {1}"),
    "neg": Form("-{0}", None, "{0} * es::VF::broadcast(-1.0f)"),
    "abs": Form("std::abs({0})", None, "es::abs({0})"),
    "min": Form("es::engine::least({0}, {1})", None, "es::min({1}, {0})"),
    "max": Form("es::engine::greatest({0}, {1})", None, "es::max({1}, {0})"),
    "pow": Form("es::engine::power({0}, {1})", DType.F32),
    "mod": Form("es::engine::modulo({0}, {1})"),
    "fmod": Form("std::fmod({0}, {1})", DType.F32),
    "sqrt": _function("sqrt", vector=True),
    "reciprocal": Form("1.0f / {0}", DType.F32, "es::VF::broadcast(1.0f) / {0}"),
    "exp": _function("exp", vector=True),
    "log": _function("log"),
    "sin": _function("sin"),
    "cos": _function("cos"),
    "tan": _function("tan"),
    "tanh": _function("tanh", vector=True),
    "erf": _function("erf", vector=True),
    "floor": _function("floor"),
    "ceil": _function("ceil"),
    "round": _function("nearbyint"),
    "sigmoid": Form("1.0f / (1.0f + std::exp(-{0}))", DType.F32, "es::sigmoid({0})"),
    "gelu": Form("0.5f * {0} * (1.0f + std::erf({0} * 0.70710678f))", DType.F32, "es::gelu({0})"),
    "gelu_tanh": Form(
        "0.5f * {0} * (1.0f + std::tanh(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))",
        DType.F32,
        "es::gelu_tanh({0})",
    ),
    "silu": Form("{0} / (1.0f + std::exp(-{0}))", DType.F32, "es::silu({0})"),
    "relu": Form("{0} > 0 ? {0} : 0", None, "es::relu({0})"),
    "softplus": Form("{0} > 20.0f ? {0} : std::log1p(std::exp({0}))", DType.F32),
    "sign": Form("es::engine::sign({0})"),
    "is_nan": Form("std::isnan({0})", DType.BOOL),
    "where": Form("{0} ? {1} : {2}"),
    "equal": Form("{0} == {1}", DType.BOOL),
    "less": Form("{0} < {1}", DType.BOOL),
    "less_equal": Form("{0} <= {1}", DType.BOOL),
    "greater": Form("{0} > {1}", DType.BOOL),
    "greater_equal": Form("{0} >= {1}", DType.BOOL),
    "and": Form("{0} && {1}", DType.BOOL),
    "or": Form("{0} || {1}", DType.BOOL),
    "xor": Form("!{0} != !{1}", DType.BOOL),
    "not": Form("!{0}", DType.BOOL),
    "cast": Form("{0}"),
}
