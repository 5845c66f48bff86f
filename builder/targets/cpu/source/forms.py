"""Operations of element-wise expressions in C++."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """How an operation is written in C++: of numbers, and over VF where every operand is float."""

    scalar: str
    vector: str | None = None


def _function(name: str, vector: bool = False) -> Form:
    return Form(f"std::{name}({{0}})", f"es::{name}({{0}})" if vector else None)


FORMS: dict[str, Form] = {
    "load": Form("{0}", "{0}"),
    "add": Form("{0} + {1}", "{0} + {1}"),
    "sub": Form("{0} - {1}", "{0} - {1}"),
    "mul": Form("{0} * {1}", "{0} * {1}"),
    "div": Form("{0} / {1}", "{0} / {1}"),
    "neg": Form("-{0}", "{0} * es::VF::broadcast(-1.0f)"),
    "abs": Form("std::abs({0})", "es::abs({0})"),
    "min": Form("es::engine::least({0}, {1})", "es::min({1}, {0})"),
    "max": Form("es::engine::greatest({0}, {1})", "es::max({1}, {0})"),
    "pow": Form("es::engine::power({0}, {1})"),
    "sqrt": _function("sqrt", vector=True),
    "reciprocal": Form("1.0f / {0}", "es::VF::broadcast(1.0f) / {0}"),
    "exp": _function("exp", vector=True),
    "log": _function("log"),
    "sin": _function("sin"),
    "cos": _function("cos"),
    "tanh": _function("tanh", vector=True),
    "erf": _function("erf", vector=True),
    "floor": _function("floor"),
    "ceil": _function("ceil"),
    "round": _function("nearbyint"),
    "sigmoid": Form("1.0f / (1.0f + std::exp(-{0}))", "es::sigmoid({0})"),
    "gelu": Form("0.5f * {0} * (1.0f + std::erf({0} * 0.70710678f))", "es::gelu({0})"),
    "gelu_tanh": Form(
        "0.5f * {0} * (1.0f + std::tanh(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))",
        "es::gelu_tanh({0})",
    ),
    "relu": Form("{0} > 0 ? {0} : 0", "es::relu({0})"),
    "softplus": Form("{0} > 20.0f ? {0} : std::log1p(std::exp({0}))"),
    "sign": Form("es::engine::sign({0})"),
    "where": Form("{0} ? {1} : {2}"),
    "equal": Form("{0} == {1}"),
    "less": Form("{0} < {1}"),
    "less_equal": Form("{0} <= {1}"),
    "greater": Form("{0} > {1}"),
    "greater_equal": Form("{0} >= {1}"),
    "and": Form("{0} && {1}"),
    "or": Form("{0} || {1}"),
    "xor": Form("!{0} != !{1}"),
    "not": Form("!{0}"),
    "bit_and": Form("{0} & {1}"),
    "bit_or": Form("{0} | {1}"),
    "bit_not": Form("~{0}"),
    "cast": Form("{0}"),
}
