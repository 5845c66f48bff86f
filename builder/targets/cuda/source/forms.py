"""Operations of element-wise expressions in Triton; {0}, {1}, ... are the operands."""

from ....lowering.views import DType

TYPES = {DType.F32: "tl.float32", DType.BF16: "tl.float32", DType.I32: "tl.int32", DType.BOOL: "tl.int1"}
"""What a value loaded from a buffer is in a kernel."""

FORMS: dict[str, str] = {
    "load": "{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "tl.div_rn({0}, {1})",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "pow": "power({0}, {1})",
    "sqrt": "tl.sqrt_rn({0})",
    "reciprocal": "tl.div_rn(1.0 + 0.0 * {0}, {0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tanh": "tanh({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "nearest({0})",
    "sigmoid": "sigmoid({0})",
    "gelu": "gelu({0})",
    "gelu_tanh": "gelu_tanh({0})",
    "relu": "tl.maximum({0}, 0)",
    "softplus": "softplus({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
    "where": "tl.where({0}, {1}, {2})",
    "equal": "{0} == {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "{0} == 0",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_not": "~{0}",
    "cast": "{0}",
}
OF_INTEGERS: dict[str, str] = {
    "div": "{0} // {1}",
    "min": "tl.minimum({0}, {1})",
    "max": "tl.maximum({0}, {1})",
    "sign": "({0} > 0).to(tl.int32) - ({0} < 0).to(tl.int32)",
}
"""Those that are written otherwise where the result is an integer."""
