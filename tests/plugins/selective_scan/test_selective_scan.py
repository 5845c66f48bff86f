"""The selective scan against float64, and the same bits however sequences are cut."""

import numpy as np
import pytest
from recurrences import Recurrence, assert_same_bits, driver

from enginesmith.plugins.discovery import operation
from enginesmith.plugins.selective_scan.reference import selective_scan

SHAPES = [(96, 16), (5, 3), (75, 8)]  # channels, size of the state
CALL = (
    "SelectiveScan<{d}, {n}>::run(pool, {{{{x[0], {d}}}, {{x[1], {d}}}, x[4], {{x[2], {n}}}, {{x[3], {n}}}, "
    "{{y, {d}}}}}, states, step)"
)


@pytest.fixture(scope="module", params=range(len(SHAPES)), ids=lambda which: str(SHAPES[which]))
def scan(compile_each, request) -> tuple[Recurrence, int, int]:
    library = compile_each(driver("selective_scan/cpu/selective_scan.h", [CALL.format(d=d, n=n) for d, n in SHAPES]))
    d, n = SHAPES[request.param]
    A = -np.exp(np.random.default_rng(9).uniform(-2, 3, (n, d))).astype(np.float32)
    return Recurrence(library, request.param, d * n, [A]), d, n


def sequence(d: int, n: int, tokens: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    u, B, C = (rng.standard_normal((tokens, size)).astype(np.float32) for size in (d, n, n))
    return [u, np.exp(rng.uniform(-6, 1, (tokens, d))).astype(np.float32), B, C]


def test_matches_the_reference(scan):
    kernel, d, n = scan
    rows = sequence(d, n, 80)
    u, dt, B, C, A = (x.astype(np.float64) for x in [*rows, *kernel.fixed])
    wanted = selective_scan(u, dt, A, B, C)
    np.testing.assert_allclose(kernel.whole(rows, (d,)), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


def test_same_bits_however_sequences_are_cut(scan):
    kernel, d, n = scan
    assert_same_bits(kernel, [sequence(d, n, tokens, tokens) for tokens in (40, 1, 23)], (d,))


def test_schema():
    op = operation("SelectiveScan")
    attributes, u, B = op.parse({}), (1, "T", 12), (1, "T", 4)
    assert op.infer([u, u, (4, 12), B, B], attributes) == (u,)
    assert op.state is not None
    assert op.state([u, u, (4, 12), B, B], attributes) == (12, 4)
    with pytest.raises(ValueError, match="belong together"):
        op.infer([u, u, (12, 4), B, B], attributes)


def test_reference_computes_the_operation():
    """One channel, whose decay is 1/2 in every step: y[t] = C[t] times the sum of 2^(s - t) dt u[s] B[s]."""
    op, rng = operation("SelectiveScan"), np.random.default_rng(0)
    u, B, C = rng.standard_normal((3, 1, 6, 1))
    dt, A = np.full((1, 6, 1), 0.5), np.full((1, 1), -2 * np.log(2))
    weights = np.tril(0.5 ** (np.arange(6)[:, None] - np.arange(6)))
    wanted = C[0] * (weights @ (0.5 * u[0] * B[0]))
    np.testing.assert_allclose(op.reference(u, dt, A, B, C, attributes=op.parse({})), wanted[None])
