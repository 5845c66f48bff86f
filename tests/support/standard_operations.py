"""Standard operations as ONNX text, with what they are in NumPy: every target runs them."""

import math

import numpy as np

VOCABULARY = 24  # also the width of the logits: ids are tokens
IDS = [5, 0, 23, 7, 7, 11, 2, 19, 3, 3, 14]  # eleven tokens: more than one chunk of rows
IDS_BELOW_13 = [i % 13 for i in IDS]  # ids of a vocabulary as large as the logits are wide
POSITIONS = np.arange(len(IDS))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


erf = np.vectorize(math.erf)

# name: (ONNX text that makes float[T, 24] `NAME` from x float[T, 24], what it is in NumPy)
ELEMENTWISE = {
    "arithmetic": (
        "a = Mul(x, x) b = Add(a, x) c = Sub(b, scale) NAME = Div(c, two)",
        lambda x, s: (x * x + x - s) / 2,
    ),
    "signs": ("a = Neg(x) b = Abs(a) c = Sqrt(b) NAME = Reciprocal(c)", lambda x, s: 1 / np.sqrt(np.abs(x))),
    "exponentials": ("a = Exp(x) b = Add(a, two) c = Log(b) NAME = Softplus(c)", lambda x, s: np.log1p(np.exp(x) + 2)),
    "waves": ("a = Sin(x) b = Cos(x) c = Mul(a, b) NAME = Tanh(c)", lambda x, s: np.tanh(np.sin(x) * np.cos(x))),
    "sigmoids": ("a = Sigmoid(x) NAME = Mul(a, x)", lambda x, s: x / (1 + np.exp(-x))),
    "gelu": ("NAME = Gelu(x)", lambda x, s: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "gelu_tanh": (
        'NAME = Gelu<approximate="tanh">(x)',
        lambda x, s: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "rectifiers": (
        "a = LeakyRelu<alpha=0.1>(x) NAME = Elu<alpha=0.5>(a)",
        lambda x, s: np.where(x > 0, x, 0.5 * (np.exp(0.1 * x) - 1)),
    ),
    "error": ("a = Erf(x) b = Sign(x) NAME = Add(a, b)", lambda x, s: erf(x) + np.sign(x)),
    "logic": (
        "a = Equal(x, x) b = Less(x, half) c = GreaterOrEqual(x, scale) d = Xor(b, c) e = Or(d, c) f = And(a, e) "
        "NAME = Where(f, x, two)",
        lambda x, s: np.where((x < 0.5) | (x >= s), x, 2),
    ),
    "powers": ("a = Pow(x, two) b = Pow(a, half) NAME = Pow(b, odd)", lambda x, s: np.abs(x) ** np.float32(1.3)),
    "bounds": (
        "a = Relu(x) b = Min(a, scale) c = Max(b, half) NAME = Clip(c, half, two)",
        lambda x, s: np.clip(np.maximum(np.minimum(np.maximum(x, 0), s), 0.5), 0.5, 2),
    ),
    "choices": (
        "a = Greater(x, scale) b = LessOrEqual(x, two) c = And(a, b) d = Not(c) NAME = Where(d, x, scale)",
        lambda x, s: np.where(~((x > s) & (x <= 2)), x, s),
    ),
    "rounding": (
        "a = Floor(x) b = Ceil(x) c = Round(x) d = Add(a, b) NAME = Add(d, c)",
        lambda x, s: np.floor(x) + np.ceil(x) + np.round(x),
    ),
    "broadcast": (
        "a = ReduceMean<keepdims=1>(x, last) b = Sub(x, a) c = Mul(b, b) d = ReduceMean<keepdims=1>(c, last) "
        "e = Add(d, eps) f = Sqrt(e) NAME = Div(b, f)",
        lambda x, s: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)),
    ),
    "positions": (
        "a = Cast<to=1>(position_ids) b = Reshape(a, column) NAME = Add(x, b)",
        lambda x, s: x + POSITIONS[:, None],
    ),
    "integers": (
        "a = Add(position_ids, three) b = BitwiseAnd(a, three) c = BitwiseOr(b, four) d = BitwiseNot(c) "
        "e = Cast<to=1>(d) f = Reshape(e, column) NAME = Mul(x, f)",
        lambda x, s: x * ~(((POSITIONS + 3) & 3) | 4)[:, None],
    ),
    "shared": (
        "a = Tanh(x) b = Mul(a, two) c = Softmax<axis=-1>(a) d = Add(b, c) NAME = Add(d, a)",
        lambda x, s: 3 * np.tanh(x) + softmax(np.tanh(x)),
    ),
}
OTHERS = {
    "softmax": ("NAME = Softmax<axis=-1>(x)", lambda x, s: softmax(x)),
    "log_softmax": ("NAME = LogSoftmax<axis=-1>(x)", lambda x, s: np.log(softmax(x))),
    "reductions": (
        "a = ReduceSum<keepdims=1>(x, last) b = ReduceMax<keepdims=1>(x, last) c = ReduceMin<keepdims=1>(x, last) "
        "d = ReduceLogSumExp<keepdims=1>(x, last) e = Add(a, b) f = Sub(c, d) g = Mul(e, f) NAME = Add(x, g)",
        lambda x, s: x + (x.sum(-1) + x.max(-1))[:, None] * (x.min(-1) - np.log(np.exp(x).sum(-1)))[:, None],
    ),
    "arg_max": (
        "a = ArgMax<axis=1, keepdims=1>(x) b = Cast<to=1>(a) NAME = Add(x, b)",
        lambda x, s: x + x.argmax(-1)[:, None],
    ),
    "cumsum": ("NAME = CumSum(x, axis_one)", lambda x, s: np.cumsum(x, axis=1)),
    "transpose": (
        "a = Reshape(x, four_six) b = Transpose<perm=[2,0,1]>(a) c = Exp(b) d = Transpose<perm=[1,0,2]>(c) "
        "NAME = Reshape(d, flat)",
        lambda x, s: np.exp(x.reshape(-1, 4, 6)).transpose(0, 2, 1).reshape(-1, 24),
    ),
    "split": (
        "a, b = Split<axis=-1>(x, halves) c = Neg(b) NAME = Concat<axis=-1>(c, a)",
        lambda x, s: np.concatenate([-x[:, 12:], x[:, :12]], axis=1),
    ),
    "slice": (
        "a = Slice(x, begin, finish, axis_one, stride) b = Slice(x, zero, six, axis_one) "
        "c = Add(a, b) NAME = Concat<axis=1>(c, c, b, a)",
        lambda x, s: np.concatenate([x[:, 1:22:4] + x[:, :6]] * 2 + [x[:, :6], x[:, 1:22:4]], axis=1),
    ),
    "expand": (
        "a = Reshape(x, four_six) b = Slice(a, zero, axis_one, axis_one) c = Expand(b, one_four_six) "
        "NAME = Reshape(c, flat)",
        lambda x, s: np.tile(x[:, :6], 4),
    ),
    "matmul": (
        "a = Reshape(x, four_six) b = Transpose<perm=[0,2,1]>(a) c = MatMul(a, b) d = MatMul(c, a) "
        "NAME = Reshape(d, flat)",
        lambda x, s: (lambda a: (a @ a.transpose(0, 2, 1)) @ a)(x.reshape(-1, 4, 6)).reshape(-1, 24),
    ),
    "outer": (
        "a = Slice(x, zero, axis_one, axis_one) NAME = MatMul(a, row)",
        lambda x, s: x[:, :1] * np.arange(24, dtype=np.float32),
    ),
    "tile": ("a = Slice(x, zero, six, axis_one) NAME = Tile(a, one_four)", lambda x, s: np.tile(x[:, :6], 4)),
    "pad": (
        "a = Slice(x, zero, six, axis_one) NAME = Pad(a, pads, two)",
        lambda x, s: np.pad(x[:, :6], ((0, 0), (10, 8)), constant_values=2),
    ),
    "gather_elements": (
        "v, i = TopK<axis=-1>(x, six) a = GatherElements<axis=1>(x, i) NAME = Concat<axis=-1>(a, v, a, a)",
        lambda x, s: np.tile(np.sort(x)[:, :-7:-1], 4),
    ),
    "scatter_elements": (
        "v, i = TopK<axis=-1>(x, six) a = Neg(v) NAME = ScatterElements<axis=1>(x, i, a)",
        lambda x, s: np.where(x >= np.sort(x)[:, -6:-5], -x, x),
    ),
    "layer_norm": (
        "NAME = LayerNormalization<epsilon=1e-5>(x, scale)",
        lambda x, s: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * s,
    ),
    "top_k": (
        "v, i = TopK<axis=-1>(x, six) n = Cast<to=1>(i) NAME = Concat<axis=-1>(v, n, v, n)",
        lambda x, s: np.concatenate([np.sort(x)[:, :-7:-1], np.argsort(-x, kind="stable")[:, :6]] * 2, axis=1),
    ),
    "gather": (
        "a = Gather<axis=1>(x, picks) b = Gather<axis=1>(x, last) NAME = Add(a, b)",
        lambda x, s: x[:, np.arange(24)[::-1] // 2] + x[:, -1:],
    ),
}
_NAMES = ("a", "b", "c", "d", "e", "f", "g", "i", "n", "v")
CONSTANTS = """
two = Constant<value_float=2.0>()  half = Constant<value_float=0.5>()  odd = Constant<value_float=1.3>()
eps = Constant<value_float=1e-5>()  last = Constant<value_ints=[-1]>()  three = Constant<value = int64 {3}>()
four = Constant<value = int64 {4}>()  axis_one = Constant<value_ints=[1]>()  zero = Constant<value_ints=[0]>()
six = Constant<value_ints=[6]>()  begin = Constant<value_ints=[1]>()  finish = Constant<value_ints=[22]>()
stride = Constant<value_ints=[4]>()  halves = Constant<value_ints=[12, 12]>()
four_six = Constant<value_ints=[0, 4, 6]>()  flat = Constant<value_ints=[0, 24]>()
one_four_six = Constant<value_ints=[1, 4, 6]>()  one_four = Constant<value_ints=[1, 4]>()
pads = Constant<value_ints=[0, 10, 0, 8]>()  column = Constant<value_ints=[0, 1]>()
picks = Constant<value_ints=[11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]>()
row = Constant<value = float[1, 24] {ROW}>()
""".replace("ROW", ", ".join(str(i) for i in range(24)))
_RANDOM = np.random.default_rng(7)
TABLE = _RANDOM.normal(0, 1.5, (VOCABULARY, 24)).astype(np.float32)
SCALE = _RANDOM.normal(0, 1, 24).astype(np.float32)
SQUARE = _RANDOM.normal(0, 0.3, (24, 24)).astype(np.float32)
PARAMETERS = {"table": TABLE, "scale": SCALE, "square": SQUARE}


def body_of(group) -> str:
    """The text of a network whose logits are what the operations of a group make, side by side."""
    lines = [CONSTANTS, "x = Gather<axis=0>(table, input_ids)"]
    for name, (text, _) in group.items():
        lines.append(_rename(text, name))
    lines.append(f"all = Concat<axis=1>({', '.join('y_' + name for name in group)})")
    lines.append("logits = Gather<axis=0>(all, logits_rows)")
    return "\n".join(lines)


def assert_matches_numpy(group, run_network, small_network) -> None:
    """Builds and runs the network of a group with a target's fixtures, and compares all results."""
    x = TABLE[IDS].astype(np.float64)
    declared = "float[T, 24] y_tile" * ("tile" in group)
    found = run_network(small_network(body_of(group), 24 * len(group), PARAMETERS, declared), IDS)
    for index, (name, (_, expected)) in enumerate(group.items()):
        part = found[:, 24 * index : 24 * (index + 1)]
        np.testing.assert_allclose(part, expected(x, SCALE), rtol=2e-5, atol=2e-5, err_msg=name)


def _rename(text: str, name: str) -> str:
    """Temporaries get names of their own; NAME becomes the result."""
    words = text.replace("NAME", f"y_{name}")
    out = ""
    token = ""
    for character in words + " ":
        if character.isalnum() or character == "_":
            token += character
        else:
            out += f"{token}_{name}" if token in _NAMES else token
            token = ""
            out += character
    return out
