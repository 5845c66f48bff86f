"""The WKV operator against float64, with exponents that would overflow, and the same bits however it is cut."""

import numpy as np
import pytest
from recurrences import Recurrence, assert_same_bits, driver

from enginesmith.plugins.discovery import operation
from enginesmith.plugins.wkv.reference import wkv

WIDTHS = [64, 3, 77]
CALL = "Wkv<{d}>::run(pool, {{x[2], x[3], {{x[0], {d}}}, {{x[1], {d}}}, {{y, {d}}}}}, states, step)"


@pytest.fixture(scope="module", params=range(len(WIDTHS)), ids=lambda which: str(WIDTHS[which]))
def average(compile_each, request) -> tuple[Recurrence, int]:
    library = compile_each(driver("wkv/cpu/wkv.h", [CALL.format(d=d) for d in WIDTHS]))
    d, rng = WIDTHS[request.param], np.random.default_rng(9)
    w, u = -np.exp(rng.uniform(-4, 1, d)).astype(np.float32), rng.standard_normal(d).astype(np.float32)
    return Recurrence(library, request.param, 3 * d, [w, u]), d


def sequence(d: int, tokens: int, seed: int = 0, offset: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    k, v = (rng.standard_normal((tokens, d)).astype(np.float32) for _ in range(2))
    return [k * 3 + np.float32(offset), v]


@pytest.mark.parametrize("offset", [0.0, 200.0, -200.0])
def test_matches_the_reference(average, offset):
    kernel, d = average
    rows = sequence(d, 80, offset=offset)
    k, v, w, u = (x.astype(np.float64) for x in [*rows, *kernel.fixed])
    np.testing.assert_allclose(kernel.whole(rows, (d,)), wkv(w, u, k, v), rtol=0, atol=1e-3 if offset else 2e-5)


def test_same_bits_however_sequences_are_cut(average):
    kernel, d = average
    assert_same_bits(kernel, [sequence(d, tokens, tokens) for tokens in (40, 1, 23)], (d,))


def test_reference_is_the_average_as_published():
    op, rng = operation("Wkv"), np.random.default_rng(0)
    w, u = -np.exp(rng.standard_normal(2)), rng.standard_normal(2)
    k, v = rng.standard_normal((2, 1, 7, 2))
    y = np.asarray(op.reference(w, u, k, v, attributes=op.parse({})))
    for t in range(7):
        weights = np.exp([*(w * (t - 1 - i) + k[0, i] for i in range(t)), u + k[0, t]])
        np.testing.assert_allclose(y[0, t], (weights * v[0, : t + 1]).sum(0) / weights.sum(0))


def test_schema():
    op = operation("Wkv")
    attributes, k = op.parse({}), (1, "T", 8)
    assert op.infer([(8,), (8,), k, k], attributes) == (k,)
    assert op.state is not None
    assert op.state([(8,), (8,), k, k], attributes) == (3, 8)
    with pytest.raises(ValueError, match="8 channels"):
        op.infer([(8,), (7,), k, k], attributes)
