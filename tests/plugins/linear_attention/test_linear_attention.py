"""Linear attention against float64: with every kind of decay, the delta rule and norms, over odd sizes."""

from dataclasses import dataclass

import numpy as np
import pytest
from recurrences import Recurrence, assert_same_bits, driver

from enginesmith.plugins.discovery import operation
from enginesmith.plugins.linear_attention.reference import linear_attention

EPSILON, SCALE = 1e-6, 0.3


@dataclass(frozen=True)
class Shape:
    """`decay`: none, of a head, of each key channel, or constant; `delta`: with beta, and norms of q and k."""

    heads: int
    key_heads: int
    k: int
    v: int
    decay: str
    delta: bool

    @property
    def call(self) -> str:
        kind = {"none": "kNone", "channel": "kChannel"}.get(self.decay, "kHead")
        width = self.k if self.decay == "channel" else 1
        stride = 0 if self.decay == "constant" else self.heads * width
        keys, values = f"{self.key_heads * self.k}, {self.k}", f"{self.heads * self.v}, {self.v}"
        delta = str(self.delta).lower()
        sizes = f"{self.heads}, {self.key_heads}, {self.k}, {self.v}"
        return (
            f"LinearAttention<{sizes}, Decay::{kind}, {delta}, {delta}>"
            f"::run(pool, {{{{x[0], {keys}}}, {{x[1], {keys}}}, {{x[2], {values}}}, "
            f"{{x[4], {stride}, {width}}}, {{x[3], {self.heads}, 1}}, {{y, {values}}}, {SCALE}f, {EPSILON}f}}, "
            "states, step)"
        )


SHAPES = [
    Shape(4, 2, 32, 40, "head", True),
    Shape(2, 2, 24, 64, "channel", True),
    Shape(3, 1, 7, 5, "channel", False),
    Shape(2, 1, 16, 33, "constant", False),
    Shape(6, 2, 13, 27, "none", True),
]


@pytest.fixture(scope="module")
def library(compile_each):
    return compile_each(driver("linear_attention/cpu/linear_attention.h", [shape.call for shape in SHAPES]))


def sequence(shape: Shape, tokens: int, seed: int = 0) -> list[np.ndarray]:
    """q, k, v and beta, then the decay where it varies."""
    rng = np.random.default_rng(seed)
    sizes = ((shape.key_heads, shape.k), (shape.key_heads, shape.k), (shape.heads, shape.v))
    rows = [rng.standard_normal((tokens, *size)) for size in sizes] + [rng.uniform(0, 2, (tokens, shape.heads))]
    if shape.decay in ("head", "channel"):
        width = (shape.heads, shape.k) if shape.decay == "channel" else (shape.heads,)
        rows.append(-np.exp(rng.uniform(-6, 1, (tokens, *width))))
    return [x.astype(np.float32) for x in rows]


def recurrence(library, which: int) -> Recurrence:
    shape = SHAPES[which]
    constant = [-np.geomspace(0.01, 1, shape.heads).astype(np.float32)] * (shape.decay in ("none", "constant"))
    return Recurrence(library, which, shape.heads * shape.k * shape.v, constant)


def expected(shape: Shape, rows: list[np.ndarray], constant: list[np.ndarray]) -> np.ndarray:
    q, k, v, beta, *decay = (x.astype(np.float64) for x in [*rows, *constant])
    given = None if shape.decay == "none" else decay[0]
    norms = {"norm_epsilon": EPSILON} if shape.delta else {}
    return linear_attention(q, k, v, given, beta if shape.delta else None, scale=SCALE, **norms)


@pytest.mark.parametrize("which", range(len(SHAPES)), ids=lambda which: str(SHAPES[which]))
def test_matches_the_reference(library, which):
    shape, kernel, rows = SHAPES[which], recurrence(library, which), sequence(SHAPES[which], 70)
    wanted = expected(shape, rows, list(kernel.fixed))
    found = kernel.whole(rows, (shape.heads, shape.v))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("which", range(len(SHAPES)), ids=lambda which: str(SHAPES[which]))
def test_same_bits_however_sequences_are_cut(library, which):
    shape = SHAPES[which]
    sequences = [sequence(shape, tokens, tokens) for tokens in (40, 1, 23)]
    assert_same_bits(recurrence(library, which), sequences, (shape.heads, shape.v))


def test_schema():
    op = operation("LinearAttention")
    attributes = op.parse({"scale": 1.0})
    q, v = (1, "T", 2, 8), (1, "T", 4, 16)
    assert op.infer([q, q, v, (1, "T", 4), (1, "T", 4)], attributes) == (v,)
    assert op.infer([q, q, v, (1, "T", 4, 8)], attributes) == (v,)
    assert op.infer([q, q, v, (4,)], attributes) == (v,)
    assert op.state is not None
    assert op.state([q, q, v, None, None], attributes) == (4, 8, 16)
    with pytest.raises(ValueError, match="4 heads"):
        op.infer([(1, "T", 3, 8), (1, "T", 3, 8), v], attributes)
    with pytest.raises(ValueError, match="decay"):
        op.infer([q, q, v, (1, "T", 2)], attributes)
    with pytest.raises(ValueError, match="beta"):
        op.infer([q, q, v, None, (1, "T", 2)], attributes)


def test_reference_computes_the_operation():
    op, rng = operation("LinearAttention"), np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 9, 2, 4))
    y = op.reference(q, k, v, attributes=op.parse({"scale": 0.5}))
    causal = np.einsum("ihd,jhd->hij", q[0], k[0]) * 0.5 * np.tri(9)
    np.testing.assert_allclose(y, np.einsum("hij,jhd->ihd", causal, v[0])[None])
