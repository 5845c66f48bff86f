"""A recipe's bars of quality, and what an engine gave beside them."""

from collections.abc import Mapping

from ..builder.evaluate.evaluate import Evaluation
from ..errors import RecipeError
from .schema import Quality


def figures(found: Evaluation) -> dict[str, float]:
    """What bars are about, of an evaluation against another model."""
    if found.comparison is None:
        raise ValueError("bars need a model to compare with")
    compared = found.comparison
    return {
        "perplexity": found.perplexity,
        "perplexity_ratio": compared.perplexity_ratio,
        "kl": compared.kl,
        "top1": compared.top1,
    }


def describe(found: Mapping[str, float]) -> str:
    """One line for people."""
    return (
        f"perplexity {found['perplexity']:.4g}, {found['perplexity_ratio'] - 1:+.2%}, "
        f"KL divergence {found['kl']:.2g} nats, top-1 agreement {found['top1']:.1%}"
    )


def require_quality(recipe: str, quality: Quality, found: Mapping[str, float]) -> None:
    """Raise RecipeError, naming every figure that is past its bar and by how much."""
    lines = []
    ratio, kl = quality.perplexity_ratio, quality.kl
    if ratio is not None and not found["perplexity_ratio"] <= ratio:
        over = found["perplexity_ratio"] - ratio
        lines.append(f"perplexity_ratio: {found['perplexity_ratio']:.5g}, {over:.2g} above the bar of {ratio:g}")
    if kl is not None and not found["kl"] <= kl:
        lines.append(f"kl: {found['kl']:.3g} nats of divergence, {found['kl'] / kl:.2g} times the bar of {kl:g}")
    if quality.top1 is not None and not found["top1"] >= quality.top1:
        short = 100 * (quality.top1 - found["top1"])
        lines.append(f"top1: {found['top1']:.1%} agreement, {short:.2g} points below the bar of {quality.top1:.1%}")
    if lines:
        raise RecipeError(
            f"recipe {recipe}: the engine is not as good as its section 'quality' asks for:\n  "
            + "\n  ".join(lines)
            + "\nChoose finer quantization, or allow more there."
        )
