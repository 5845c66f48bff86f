"""Facts as people read them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..units import shown_size
from .terminal import say

if TYPE_CHECKING:
    from ..builder.quantize.report import QuantizeReport
    from ..builder.report import BuildReport


def counted(count: int, thing: str) -> str:
    """1 prompt, 2 prompts."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def section(title: str, facts: Mapping[str, str]) -> None:
    """A heading, and its facts in two columns; nothing where there are none."""
    if not facts:
        return
    width = max(len(name) for name in facts)
    say(title, bold=True)
    for name, value in facts.items():
        say(f"  {name:<{width}}  {value}")


def check_facts(check: Mapping[str, Any]) -> dict[str, str]:
    """The result of a build's check, from its report."""
    return {
        "worst logit distance": f"{check['distance']:.2g} of a row's spread (bar {check['distance_bar']:g})",
        "mean KL divergence": f"{check['kl']:.2g} nats (bar {check['kl_bar']:g})",
        "top-1 agreement": f"{check['top1']:.0%} of {counted(check['rows'], 'row')}",
    }


def show_build(report: "BuildReport", output: Path) -> None:
    """What a build made, how long it took, and how close the engine is to the model."""
    seconds = ", ".join(f"{step} {taken:.1f}" for step, taken in report.seconds.items() if taken >= 0.1)
    section(
        f"Built {output}",
        {
            "model": f"{report.architecture} ({shown_size(report.checkpoint_bytes)} of weights)",
            "engine": f"{shown_size(report.weights_bytes)} of weights for {report.target}",
            "fused": ", ".join(f"{count} {name}" for name, count in report.fusions.items() if count),
            "seconds": f"{sum(report.seconds.values()):.1f} ({seconds})",
        },
    )
    if report.quantization is not None:
        section("Quantized first", quantization_facts(report.quantization))
    if report.chat_template_error:
        say(f"warning: {report.chat_template_error}; --chat will be refused, plain prompts work", err=True)
    for note in report.notes:
        say(f"note: {note}", err=True)
    if report.check is not None:
        section("Check against Transformers", check_facts(asdict(report.check)))


def show_quantization(report: "QuantizeReport", output: Path) -> None:
    """What a quantization made, with which data, and which layers are furthest off."""
    reasons = Counter(report.left_alone.values())
    alone = ", ".join(f"{count} ({reason})" for reason, count in reasons.items())
    before, after = report.bytes_before, report.bytes_after
    cache = f", KV cache {report.kv_cache}" if report.kv_cache else ""
    data = report.calibration
    section(
        f"Quantized {output}",
        {
            "method": f"{report.method}, stored as {report.format}",
            "scheme": f"{report.scheme}{cache}",
            "linear layers": f"{len(report.layers)} quantized, {alone or 'none'} left alone",
            "weights": f"{shown_size(before)} before, {shown_size(after)} after ({after / max(before, 1):.0%})",
            "calibration": f"{data['tokens']} tokens {_from(data['source'])}, seed {data['seed']}" if data else "none",
            "seconds": f"{report.seconds:.1f}",
        },
    )
    what = "outputs" if data else "weights"
    section(f"Furthest off, relative to the {what}", {each.name: f"{each.error:.2%}" for each in report.worst()})


def quantization_facts(done: Mapping[str, Any]) -> dict[str, str]:
    """What a build's own quantization did and changed, from its report."""
    logits = done.get("logits")
    facts = {"method": f"{done['method']}, {len(done['layers'])} linear layers to {done['scheme']}"}
    if logits is not None:
        facts["changes"] = f"mean KL divergence {logits['kl']:.2g} nats, top-1 agreement {logits['top1']:.0%}"
    return facts


def _from(source: str) -> str:
    return source if source.startswith("sampled") else f"of {source}"
