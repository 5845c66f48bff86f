"""Bars of quality: what is past them is named, with by how much."""

import pytest

from enginesmith.errors import RecipeError
from enginesmith.recipes.quality import describe, require_quality
from enginesmith.recipes.schema import Quality

FOUND = {"perplexity": 12.0, "perplexity_ratio": 1.2, "kl": 0.23, "top1": 0.85}


def _quality(**bars: float) -> Quality:
    return Quality.model_validate(bars)


def test_within_every_bar() -> None:
    require_quality("r", _quality(perplexity_ratio=1.2, kl=0.23, top1=0.85), FOUND)
    require_quality("r", _quality(), FOUND)


def test_each_bar_that_is_passed_is_named_with_by_how_much() -> None:
    with pytest.raises(RecipeError) as error:
        require_quality("r", _quality(perplexity_ratio=1.1, kl=0.1, top1=0.9), FOUND)
    assert "perplexity_ratio: 1.2, 0.1 above the bar of 1.1" in str(error.value)
    assert "kl: 0.23 nats of divergence, 2.3 times the bar of 0.1" in str(error.value)
    assert "top1: 85.0% agreement, 5 points below the bar of 90.0%" in str(error.value)


@pytest.mark.parametrize("name", ["perplexity_ratio", "kl", "top1"])
def test_a_number_that_is_none_passes_no_bar(name: str) -> None:
    with pytest.raises(RecipeError, match=name):
        require_quality("r", _quality(**{name: 0.5}), FOUND | {name: float("nan")})


def test_it_is_told_in_one_line() -> None:
    assert describe(FOUND) == "perplexity 12, +20.00%, KL divergence 0.23 nats, top-1 agreement 85.0%"
