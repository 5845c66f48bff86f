"""How good a model's predictions are: perplexity, and how far its logits are from those of another model.

Everything is summed in float64, over a few rows of logits at a time.
"""

import math
from dataclasses import dataclass

import numpy as np

_BLOCK_ELEMENTS = 1 << 21  # of logits in float64 at once: 16 MB


@dataclass
class Quality:
    """Sums over tokens: feed it rows of logits with `add`, then read the figures.

    `nll` and `reference_nll` are sums of negative log likelihoods in nats over `tokens`, `kl_sum` is one of divergences
    over the `compared` rows. `distance`: the worst difference of any logit, relative to the spread (standard deviation)
    of the reference's row.
    """

    tokens: int = 0
    nll: float = 0.0
    reference_nll: float = 0.0
    kl_sum: float = 0.0
    kl_worst: float = 0.0
    distance: float = 0.0
    agreed: int = 0
    compared: int = 0

    def add(self, logits: np.ndarray, targets: np.ndarray | None = None, reference: np.ndarray | None = None) -> None:
        """Logits [R, V], the token [R] that followed each, and the logits [R, V] of the model to compare with.

        Perplexities are of the tokens, the other figures of the rows compared. NaN in logits counts as a token that was
        impossible, and as infinitely far.
        """
        rows = max(1, _BLOCK_ELEMENTS // logits.shape[1])
        for first in range(0, len(logits), rows):
            part = slice(first, first + rows)
            self._add(
                logits[part],
                None if targets is None else targets[part],
                None if reference is None else reference[part],
            )

    def _add(self, logits: np.ndarray, targets: np.ndarray | None, reference: np.ndarray | None) -> None:
        x, log_sum = _normalized(logits)
        if targets is not None:
            self.tokens += len(targets)
            self.nll += _nll(x, log_sum, targets)
        if reference is None:
            return
        y, y_log_sum = _normalized(reference)
        if targets is not None:
            self.reference_nll += _nll(y, y_log_sum, targets)
        self.compared += len(logits)
        self.agreed += int((x.argmax(axis=1) == y.argmax(axis=1)).sum())
        self.distance = max(self.distance, _distance(logits, reference))
        y -= y_log_sum
        p = np.exp(y)
        x -= log_sum
        with np.errstate(invalid="ignore"):
            np.subtract(y, x, out=y)
        y[p == 0] = 0  # what the reference excludes counts nothing, whatever its log is
        kl = np.nan_to_num((p * y).sum(axis=1), nan=np.inf).clip(min=0)
        self.kl_sum += float(kl.sum())
        self.kl_worst = max(self.kl_worst, float(kl.max(initial=0)))

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log likelihood of a token."""
        return _perplexity(self.nll, self.tokens)

    @property
    def reference_perplexity(self) -> float:
        """That of the model compared with, on the same tokens."""
        return _perplexity(self.reference_nll, self.tokens if self.compared else 0)

    @property
    def kl(self) -> float:
        """Mean over rows of the Kullback-Leibler divergence D(reference || model), in nats."""
        return self.kl_sum / self.compared if self.compared else math.nan

    @property
    def top1(self) -> float:
        """Share of rows in which both models find the same token likeliest."""
        return self.agreed / self.compared if self.compared else math.nan


def _normalized(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float64 logits [R, V] less the row's largest, and the log [R, 1] of the sum of their exponentials."""
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x, np.log(np.exp(x).sum(axis=1, keepdims=True))


def _distance(logits: np.ndarray, reference: np.ndarray) -> float:
    found, expected = logits.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        spread = expected.std(axis=1) + 1e-30
        found -= expected
        furthest = np.abs(found, out=found).max(axis=1, initial=0) / spread
    return float(np.nan_to_num(furthest, nan=np.inf).max(initial=0))


def _nll(x: np.ndarray, log_sum: np.ndarray, targets: np.ndarray) -> float:
    of_targets = log_sum[:, 0] - x[np.arange(len(targets)), targets]
    return float(np.nan_to_num(of_targets, nan=np.inf).sum())


def _perplexity(nll: float, tokens: int) -> float:
    if not tokens:
        return math.nan
    try:
        return math.exp(nll / tokens)
    except OverflowError:
        return math.inf
