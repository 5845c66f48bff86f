"""Sampling of the next token in NumPy, step by step as `cpu/sampling.h` does it."""

from dataclasses import dataclass, field

import numpy as np

_MASK = 0xFFFFFFFF
_LOW = np.float32(0.01)


@dataclass(frozen=True)
class Sampling:
    """One row's settings, named as in the runtime's SamplingParams; the defaults leave the distribution as it is.

    A temperature is 0 (greedy) or within [2^-126, 2^100], to which the runtime clamps others.

    `prompt` and `output` are the token ids so far; `bias` maps token ids to what is added to their logits.
    `bad_words` are token ids, and `allowed` the tokens that a mask lets through; None: all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    bias: dict[int, float] = field(default_factory=dict)
    no_repeat_ngram_size: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed: frozenset[int] | None = None
    seed: int = 0
    position: int = 0


def philox4x32(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); key is 64 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & _MASK, key >> 32 & _MASK
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b & _MASK, a >> 32 ^ c3 ^ k1, a & _MASK
        k0, k1 = k0 + 0x9E3779B9 & _MASK, k1 + 0xBB67AE85 & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, index: int) -> float:
    """Number `index` of stream `seed`: uniform over the multiples of 2^-53 in [0, 1)."""
    x = philox4x32((index & _MASK, index >> 32 & _MASK, 0, 0), seed)
    return ((x[0] << 32 | x[1]) >> 11) * 2.0**-53


def banned(settings: Sampling, vocab_size: int) -> set[int]:
    """Tokens outside the mask, that complete a bad word, or that make an n-gram come again."""
    found = set() if settings.allowed is None else set(range(vocab_size)) - settings.allowed
    for word in settings.bad_words:
        before = len(word) - 1
        if before <= len(settings.output) and settings.output[len(settings.output) - before :] == word[:-1]:
            found.add(word[-1])
    history, context = settings.prompt + settings.output, settings.no_repeat_ngram_size - 1
    if 0 <= context <= len(history):
        last = history[len(history) - context :]
        found |= {history[i + context] for i in range(len(history) - context) if history[i : i + context] == last}
    return found


def adjusted(logits: np.ndarray, settings: Sampling) -> np.ndarray:
    """Logits [V] float32 after bias, bans and penalties."""
    scores = logits.astype(np.float32)
    for token, value in settings.bias.items():
        scores[token] += np.float32(value)
    scores[list(banned(settings, len(scores)))] = -np.inf
    counts = np.bincount(np.array(settings.output, dtype=np.int64), minlength=len(scores))
    for token in {*settings.prompt, *settings.output}:
        if not np.isfinite(scores[token]):
            continue
        repetition = np.float32(settings.repetition_penalty)
        scores[token] = _finite(scores[token] / repetition if scores[token] > 0 else scores[token] * repetition)
        scores[token] = _finite(scores[token] - np.float32(settings.frequency_penalty) * np.float32(counts[token]))
        if counts[token]:
            scores[token] = _finite(scores[token] - np.float32(settings.presence_penalty))
    return scores


def _finite(score: np.float32) -> np.float32:
    """Adjusting a score does not ban its token."""
    return np.clip(score, np.finfo(np.float32).min, np.finfo(np.float32).max)


def divided(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Scores [V] over a positive temperature; where that is low, or a quotient overflows, they count from the best."""
    divisor, best = np.float32(temperature), scores.max()
    if divisor >= _LOW and np.isfinite(best / divisor):
        return scores / divisor
    return (scores - best) / divisor


def kept(scores: np.ndarray, settings: Sampling) -> np.ndarray:
    """Which tokens [V] may be drawn: top-k, then top-p of what is left, then min-p. `scores` have the temperature."""
    order = np.lexsort((np.arange(len(scores)), -scores))  # best first, the lower id first among equals
    order = order[np.isfinite(scores[order])]
    best = scores[order[0]]
    if settings.top_k:
        order = order[: settings.top_k]
    if settings.top_p < 1:
        weights = np.exp((scores[order] - best).astype(np.float64))
        before = np.cumsum(weights) - weights
        order = order[before < np.float32(settings.top_p) * weights.sum()]
    if settings.min_p > 0:
        order = order[scores[order] >= best + np.log(np.float32(settings.min_p))]
    mask = np.zeros(len(scores), dtype=bool)
    mask[order] = True
    return mask


def sample(logits: np.ndarray, settings: Sampling) -> int:
    """The token drawn from logits [V]: the first, in id order, whose running share of the kept weight exceeds u."""
    scores = adjusted(logits, settings)
    if settings.temperature == 0:
        return int(np.argmax(scores))
    with np.errstate(over="ignore", under="ignore"):
        scores = divided(scores, settings.temperature)
    weights = np.where(kept(scores, settings), np.exp((scores - scores.max()).astype(np.float64)), 0.0)
    running = np.cumsum(weights)
    target = uniform(settings.seed, settings.position) * running[-1]
    return int(min(np.searchsorted(running, target, side="right"), np.flatnonzero(weights)[-1]))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log probabilities [V] float64 of the raw logits."""
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def rank(logits: np.ndarray, token: int) -> int:
    """1 + how many logits are higher than the token's."""
    return 1 + int(np.sum(logits > logits[token]))
