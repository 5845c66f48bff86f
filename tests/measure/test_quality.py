"""Quality in blocks, beside the definitions computed plainly in float64 on whole arrays."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.measure import quality
from enginesmith.measure.quality import Quality


def _plain(logits: np.ndarray, targets: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    def probabilities(x: np.ndarray) -> np.ndarray:
        e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    p, q = probabilities(reference), probabilities(logits)
    rows = np.arange(len(targets))
    return {
        "perplexity": np.exp(-np.log(q[rows, targets]).mean()),
        "reference_perplexity": np.exp(-np.log(p[rows, targets]).mean()),
        "kl": (p * np.log(p / q)).sum(axis=1).mean(),
        "kl_worst": (p * np.log(p / q)).sum(axis=1).max(),
        "distance": (np.abs(logits.astype(np.float64) - reference) / reference.std(axis=1, keepdims=True)).max(),
        "top1": (p.argmax(axis=1) == q.argmax(axis=1)).mean(),
    }


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(2, 90), st.integers(0, 2**32 - 1), st.floats(0.01, 3))
def test_the_figures_are_those_of_the_definitions(rows: int, vocab: int, seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    reference = rng.normal(0, 3, (rows, vocab)).astype(np.float32).astype(np.float64)
    logits = reference + rng.normal(0, noise, (rows, vocab)).astype(np.float32)
    targets = rng.integers(0, vocab, rows)
    found = Quality()
    cut = rows // 2
    found.add(logits[:cut], targets[:cut], reference[:cut])
    found.add(logits[cut:], targets[cut:], reference[cut:])
    assert found.tokens == rows
    for name, value in _plain(logits, targets, reference).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    arguments = rng.normal(size=(30, 50)), rng.integers(0, 50, 30), rng.normal(size=(30, 50))
    whole, parts = Quality(), Quality()
    whole.add(*arguments)
    monkeypatch.setattr(quality, "_BLOCK_ELEMENTS", 170)
    parts.add(*arguments)
    assert parts.kl == pytest.approx(whole.kl, rel=1e-12)
    assert parts.perplexity == pytest.approx(whole.perplexity, rel=1e-12)
    assert parts.top1 == whole.top1


def test_a_model_beside_itself() -> None:
    logits = np.random.default_rng(2).normal(size=(20, 33)).astype(np.float32)
    found = Quality()
    found.add(logits, np.zeros(20, int), logits)
    assert found.kl == found.distance == 0
    assert found.top1 == 1
    assert found.perplexity == found.reference_perplexity


def test_the_divergence_is_from_the_reference() -> None:
    """D(P || Q) of P = (1/2, 1/2), Q = (1/4, 3/4) is ln 2 - ln(3) / 2; the other way round it is another number."""
    p, q = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    found = Quality()
    found.add(q, np.array([0]), p)
    assert found.kl == pytest.approx(math.log(2) - math.log(3) / 2)
    assert found.perplexity == pytest.approx(4)
    assert found.reference_perplexity == pytest.approx(2)


def test_tokens_that_the_reference_excludes_count_nothing() -> None:
    found = Quality()
    found.add(np.array([[0.0, 0.0, 0.0]]), np.array([0]), np.array([[0.0, 0.0, -np.inf]]))
    assert found.kl == pytest.approx(math.log(1.5))


def test_nan_is_infinitely_far() -> None:
    found = Quality()
    found.add(np.full((2, 4), np.nan), np.array([0, 1]), np.zeros((2, 4)))
    assert (found.kl, found.perplexity, found.distance) == (math.inf, math.inf, math.inf)


def test_without_tokens_there_is_the_distance_alone() -> None:
    """The standard deviation of (0, 2) is 1, so the worst logit, 3 off, is 3 spreads away."""
    found = Quality()
    found.add(np.array([[0.0, 5.0], [0.0, 0.0]]), reference=np.array([[0.0, 2.0], [0.0, 2.0]]))
    assert (found.distance, found.top1, found.compared) == (pytest.approx(3), 0.5, 2)
    assert math.isnan(found.perplexity)
    assert math.isnan(found.reference_perplexity)


def test_without_a_reference_there_is_perplexity_alone() -> None:
    found = Quality()
    found.add(np.zeros((3, 8)), np.array([1, 2, 3]))
    assert found.perplexity == pytest.approx(8)
    assert math.isnan(found.kl)
    assert math.isnan(found.top1)
