"""Evaluation of an engine or a checkpoint: perplexity on a text and, against another model, how far apart they are."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.folder import REPORT
from ...errors import EvaluationError
from ...measure.quality import Quality
from ...measure.texts import TOPICS, evaluation_text
from ...measure.windows import DEFAULT_TOKENS, DEFAULT_WINDOW, Window, windows
from ...progress import NoProgress, Progress
from ...runtime.tokenizer import NoTokenizer
from ..quantize.report import LayerReport
from .layers import read_layers, weight_errors
from .subjects import CheckpointSubject, Subject, open_subject


@dataclass(frozen=True)
class Comparison:
    """Beside another model, on the same tokens. `kl`: mean D(other || subject) of a token, in nats; `top1` a share."""

    against: str
    perplexity: float
    perplexity_ratio: float
    kl: float
    kl_worst: float
    top1: float


@dataclass(frozen=True)
class Evaluation:
    """What was found. `tokens` were scored, in windows of `window` tokens that move on by `stride`."""

    subject: str
    text: str
    tokens: int
    window: int
    stride: int
    perplexity: float
    comparison: Comparison | None
    seconds: float
    layers: list[LayerReport] = field(default_factory=list)

    @property
    def worst_layers(self) -> list[LayerReport]:
        """The layers that suffer most, first."""
        return sorted(self.layers, key=lambda layer: -layer.error)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the layers in order."""
        return asdict(self)


def evaluate(
    subject: str | Path,
    against: str | Path | None = None,
    *,
    text: str | Path | None = None,
    window: int | None = None,
    stride: int | None = None,
    max_tokens: int | None = DEFAULT_TOKENS,
    progress: Progress | None = None,
) -> Evaluation:
    """Perplexity of an engine folder or a checkpoint (a folder, a GGUF file, a Hub id) on the text.

    Engines run as they serve; checkpoints in Transformers in float32, quantized ones with the weights that their
    integers stand for. `against`, another of either with the same vocabulary, adds the divergence from it. `text`:
    a UTF-8 file; default: English text of the Python installation. `window` is 512 tokens by default, or the most that
    an engine takes; `stride` half of it; of the text, the first `max_tokens` tokens are used (None: all). Holds
    2 * stride * vocabulary logits. Raises EvaluationError for what cannot be evaluated.
    """
    progress = progress or NoProgress()
    source, content = _read(text)
    start = time.perf_counter()
    with ExitStack() as stack:
        names = [subject] if against is None else [subject, against]
        models = [stack.enter_context(closing(open_subject(name, progress))) for name in names]
        prefix, token_ids = _tokens(models, content, max_tokens)
        window, stride = _window(models, window, stride, max(1, len(prefix)))
        _require_tokens(len(token_ids), window - len(prefix), source)
        for model in models:
            model.load(window, progress)
        quality = _score(models, windows(token_ids, window, stride, prefix), progress)
        layers = _layers(models)
        against_name = models[-1].name
    return Evaluation(
        subject=models[0].name,
        text=source,
        tokens=quality.tokens,
        window=window,
        stride=stride,
        perplexity=quality.perplexity,
        comparison=_comparison(quality, against_name) if against is not None else None,
        seconds=time.perf_counter() - start,
        layers=layers,
    )


def _comparison(quality: Quality, against: str) -> Comparison:
    reference = quality.reference_perplexity
    ratio = quality.perplexity / reference
    return Comparison(against, reference, ratio, quality.kl, quality.kl_worst, quality.top1)


def _read(text: str | Path | None) -> tuple[str, str]:
    """What to call the text, and the text."""
    if text is None:
        return TOPICS, evaluation_text()
    try:
        return str(text), Path(text).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{text}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise EvaluationError(f"{text}: cannot be read: {error.strerror or error}") from None


def _window(models: Sequence[Subject], window: int | None, stride: int | None, context: int) -> tuple[int, int]:
    """Window and stride, by default the usual ones where all models can take them. `context`: the least a token has."""
    limits = {model.name: model.max_window for model in models if model.max_window is not None}
    chosen = min([DEFAULT_WINDOW, *limits.values()]) if window is None else window
    for name, limit in limits.items():
        if chosen > limit:
            raise EvaluationError(f"window {chosen} is more than the {limit} tokens that {name} takes")
    if chosen <= context:
        raise EvaluationError(f"window must be at least {context + 1} tokens, got {chosen}")
    stride = chosen // 2 if stride is None else stride
    if not 1 <= stride <= chosen - context:
        raise EvaluationError(f"stride must be in [1, {chosen - context}], less than the window, got {stride}")
    return chosen, stride


def _tokens(models: Sequence[Subject], content: str, most: int | None) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before a text, and the text's tokens: the same for all models."""
    found = []
    for model in models:
        if isinstance(model.tokenizer, NoTokenizer):
            raise EvaluationError(f"{model.name} has no tokenizer, so no text can be evaluated")
        plain = model.tokenizer.encode(content, add_special_tokens=False)[:most]
        found.append((model.tokenizer.beginning, plain))
    if any(tokens != found[0] for tokens in found):
        raise EvaluationError(
            f"{models[0].name} and {models[-1].name} split the text into different tokens, so their predictions "
            "cannot be compared; give models with one tokenizer"
        )
    return found[0]


def _require_tokens(found: int, needed: int, source: str) -> None:
    if found < needed:
        raise EvaluationError(
            f"{source} has {found} tokens, fewer than the {needed} of one window; give a longer text, more of it "
            "(--tokens), or a smaller --window"
        )


def _score(models: Sequence[Subject], parts: Sequence[Window], progress: Progress) -> Quality:
    sizes = {model.name: model.vocab_size for model in models}
    if len(set(sizes.values())) > 1:
        shapes = " and ".join(f"{name} has {size}" for name, size in sizes.items())
        raise EvaluationError(f"their logits cannot be compared: {shapes} tokens in its vocabulary")
    quality = Quality()
    with progress.task("evaluate", len(parts)) as task:
        for part in parts:
            found = [model.logits(part.tokens, len(part.targets)) for model in models]
            quality.add(found[0], np.array(part.targets), *found[1:])
            task.advance()
    return quality


def _layers(models: Sequence[Subject]) -> list[LayerReport]:
    """What the quantizer reported of the subject, or else how far its weights are from those it is compared with."""
    if (report := models[0].folder / REPORT).is_file():
        return read_layers(report)
    if len(models) == 2 and isinstance(models[0], CheckpointSubject) and isinstance(models[1], CheckpointSubject):
        return weight_errors(models[0].model, models[1].model)
    return []
