"""The linear recurrence against float64, and the same bits however sequences are cut."""

import numpy as np
import pytest
from recurrences import Recurrence, assert_same_bits, driver

from enginesmith.plugins.discovery import operation
from enginesmith.plugins.linear_recurrence.reference import linear_recurrence

CASES = [(64, False), (3, True), (77, False), (40, True)]  # channels, max-plus
CALL = "LinearRecurrence<{d}, {max_plus}>::run(pool, {{{{x[0], {d}}}, {{x[1], {d}}}, {{y, {d}}}}}, states, step)"


@pytest.fixture(scope="module", params=range(len(CASES)), ids=lambda which: str(CASES[which]))
def recurrence(compile_each, request) -> tuple[Recurrence, int, bool]:
    calls = [CALL.format(d=d, max_plus=str(max_plus).lower()) for d, max_plus in CASES]
    library = compile_each(driver("linear_recurrence/cpu/linear_recurrence.h", calls))
    d, max_plus = CASES[request.param]
    return Recurrence(library, request.param, d), d, max_plus


def sequence(d: int, tokens: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((tokens, d)).astype(np.float32), rng.uniform(-1, 1, (tokens, d)).astype(np.float32)]


def test_matches_the_reference(recurrence):
    kernel, d, max_plus = recurrence
    rows = sequence(d, 80)
    wanted = linear_recurrence(*(x.astype(np.float64) for x in rows), max_plus=max_plus)
    np.testing.assert_allclose(kernel.whole(rows, (d,)), wanted, rtol=0, atol=1e-5)


def test_same_bits_however_sequences_are_cut(recurrence):
    kernel, d, _ = recurrence
    assert_same_bits(kernel, [sequence(d, tokens, tokens) for tokens in (40, 1, 23)], (d,))


def test_operation():
    op, x = operation("LinearRecurrence"), np.arange(1.0, 5.0).reshape(1, 4, 1)
    attributes = op.parse({})
    h = op.reference(x, np.full_like(x, 0.5), attributes=attributes)
    np.testing.assert_array_equal(np.asarray(h).ravel(), [1, 2.5, 4.25, 6.125])
    h = op.reference(-x, np.full_like(x, -0.5), attributes=op.parse({"max_plus": 1}))
    np.testing.assert_array_equal(np.asarray(h).ravel(), [-0.5, -1, -1.5, -2])
    assert op.infer([(1, "T", 8), (1, "T", 8)], attributes) == ((1, "T", 8),)
    assert op.state is not None
    assert op.state([(1, "T", 8), (1, "T", 8)], attributes) == (8,)
    with pytest.raises(ValueError, match="one shape"):
        op.infer([(1, "T", 8), (8,)], attributes)
