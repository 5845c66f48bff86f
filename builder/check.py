"""The check that ends a build: the engine's logits beside those of Transformers in float32, on a few prompts."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.tokenizer_files import has_tokenizer
from ..checkpoint.weights import Weights
from ..errors import BuildError, RequestError
from ..measure.quality import Quality
from ..progress import Progress
from ..quantization.scheme import WeightType
from ..runtime.engine_dir import EngineDir
from ..runtime.logits import PromptRunner
from .build_options import BuildConfig
from .checkpoint_tokenizer import tokenizer_of
from .lowering.schemes import DEFAULT_INT4_GROUP
from .reference import forward, load_dequantized, load_reference
from .report import CheckResult
from .targets.target import Plan

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at a hundred degrees because the molecules of a liquid",
)
MAX_PROMPT = 24

# Bars: (worst distance of a logit relative to its row's spread, mean KL divergence of a row in nats). Unrelated logits
# are about 7 and 10; SmolLM2-135M, a small model that suffers most, gives what stands in brackets.
# fp32 (6e-5, 1e-9): only the order of additions differs from PyTorch.
# bf16 (0.05, 1e-4): weights and KV cache rounded to 8 bits of mantissa.
# fp8 (1.5, 0.024): weights by channel, of 4 significant bits; the head int8. A checkpoint's FP8 weights are those of
#   the reference, but activations may have 4 significant bits, too.
# int8 (0.54, 0.008): weights by channel.
BARS = {"fp32": (1e-3, 1e-6), "bf16": (0.25, 0.01), "fp8": (3.0, 0.12), "int8": (1.5, 0.05)}
# A checkpoint's integers are those of the reference, but activations may have 8 bits.
STORED_INTEGER_BARS = (2.5, 0.1)
# A KV cache of 8 bits has a bar of its own, of which and that of the weights the larger holds.
# int8 (0.25, 9e-4), fp8 (0.48, 0.005): beside weights in fp32, with scales by token.
KV_BARS = {"int8": (1.0, 0.02), "fp8": (2.0, 0.06)}
# int4: how many weights share a scale and a zero decides, hence a bar for groups up to each length. They tell a wrong
# engine from a coarse one: twice the divergence that rounding to nearest costs the same model in PyTorch.
# 32 (0.45, 0.005): 16 levels are nearly lossless here only because its weights were rounded to such groups before; the
#   bar leaves what symmetric groups of 32, which do not fit them, cost: (4.0, 0.47).
# 64 (3.6, 0.42), 128 (5.2 to 7.1, 0.68 to 0.76, by the grids tried).
INT4_BARS = ((32, (5.0, 0.6)), (64, (6.0, 0.9)), (math.inf, (8.0, 1.5)))
# A head that was asked for: int4 (1.3, 0.056), beside int4 layers in groups of 32, which are (0.45, 0.005) without it.
HEAD_BARS = {"int8": BARS["int8"], "int4": (3.0, 0.2)}


@dataclass(frozen=True)
class Reference:
    """Prompts, and for each the logits [len(prompt), vocab] that Transformers gives in float32."""

    prompts: list[list[int]]
    logits: list[np.ndarray]


def make_reference(weights: Weights, vocab_size: int, max_seq_len: int, progress: Progress) -> Reference:
    """Run the checkpoint's own Transformers class. Holds the model in float32 while it runs."""
    prompts = prompts_of(weights.checkpoint, vocab_size, max_seq_len)
    with progress.task("reference logits", len(prompts)) as task:
        logits = []
        for item in reference_logits(weights, prompts):
            logits.append(item)
            task.advance()
    return Reference(prompts, logits)


def check(engine: EngineDir, reference: Reference, plan: Plan, progress: Progress) -> CheckResult:
    """Compare all rows of the prompts. Raises BuildError where the engine is further off than its scheme's bar."""
    found = []
    with progress.task("check", len(reference.prompts)) as task, PromptRunner(engine, MAX_PROMPT) as runner:
        for prompt in reference.prompts:
            found.append(runner.logits(prompt))
            task.advance()
    expected = np.concatenate(reference.logits)
    distance_bar, kl_bar = bars(plan.config, plan.stored_type)
    distance_bar, kl_bar = plan.config.check_distance or distance_bar, plan.config.check_kl or kl_bar
    result = compare(np.concatenate(found), expected, distance_bar, kl_bar)
    if not result.passed:
        raise BuildError(_failure(result, plan.scheme))
    return result


def _failure(result: CheckResult, scheme: str) -> str:
    """What is past its bar, and by how much."""
    distance, kl = result.distance / result.distance_bar, result.kl / result.kl_bar
    return (
        f"the engine disagrees with the model: worst logit distance {result.distance:.3g} of the spread, "
        f"{distance:.2g} times the bar for {scheme} ({result.distance_bar:g}); mean KL divergence {result.kl:.3g} "
        f"nats, {kl:.2g} times the bar ({result.kl_bar:g}); top-1 agreement {result.top1:.0%}. Choose finer "
        "quantization, allow more with --check-distance and --check-kl, or build it as it is with --no-check"
    )


def bars(config: BuildConfig, stored: WeightType | None = None) -> tuple[float, float]:
    """The largest worst distance and mean KL divergence that the options of a build may cost.

    `stored`: what the engine holds of a quantized checkpoint, hence the reference's own weights: only the head and
    activations are rounded.
    """
    found = [_weight_bars(config, stored)]
    if config.head in HEAD_BARS:
        found.append(HEAD_BARS[config.head])
    if config.kv_cache:
        found.append(KV_BARS[config.kv_cache])
    return max(distance for distance, _ in found), max(kl for _, kl in found)


def _weight_bars(config: BuildConfig, stored: WeightType | None) -> tuple[float, float]:
    if stored is not None:
        return BARS["fp8"] if stored is WeightType.FP8 else STORED_INTEGER_BARS
    if config.weights is None:
        return BARS[config.dtype]
    if config.weights != "int4":
        return BARS[config.weights]
    group = config.group_size or DEFAULT_INT4_GROUP
    return next(bar for limit, bar in INT4_BARS if group <= limit)


def compare(found: np.ndarray, expected: np.ndarray, distance_bar: float, kl_bar: float) -> CheckResult:
    """Logits [rows, vocab] against logits [rows, vocab]. NaN counts as infinitely far."""
    quality = Quality()
    quality.add(found, reference=expected)
    return CheckResult(
        rows=quality.compared,
        distance=quality.distance,
        kl=quality.kl,
        kl_worst=quality.kl_worst,
        top1=quality.top1,
        distance_bar=distance_bar,
        kl_bar=kl_bar,
    )


def prompts_of(checkpoint: Checkpoint, vocab_size: int, max_seq_len: int) -> list[list[int]]:
    """Token ids of PROMPTS by the checkpoint's tokenizer, or, where it has none, of an arithmetic sequence."""
    length = min(MAX_PROMPT, max_seq_len)
    if has_tokenizer(checkpoint.path):
        tokenizer = tokenizer_of(checkpoint.path)
        texts: list[list[int]] = []
        with suppress(RequestError):  # it may fail on them, and the engine still takes token ids
            texts = [tokenizer.encode(text)[:length] for text in PROMPTS]
        if texts and all(texts) and all(token < vocab_size for ids in texts for token in ids):
            return texts
    return [[(start + 7919 * i) % vocab_size for i in range(length)] for start in (3, 11, 29)]


def reference_logits(weights: Weights, prompts: list[list[int]]) -> Iterator[np.ndarray]:
    """Logits [len(prompt), vocab] of every prompt, by the checkpoint's own Transformers class in float32."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))  # the compiler runs beside it, and OpenMP's barriers spin
    try:
        model = load_dequantized(weights) if weights.stored else load_reference(weights.checkpoint)
        for prompt in prompts:
            yield forward(model, prompt)
    finally:
        torch.set_num_threads(threads)
