"""Inputs as layers of language models have them: correlated, a few channels much larger than the rest."""

import numpy as np

from enginesmith.quantization.statistics import InputStatistics


def inputs(tokens: int, k: int, seed: int = 0) -> np.ndarray:
    """float32 [tokens, k]; the same seed mixes channels the same way."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((k, k)) / k**0.5 + 0.5 * np.eye(k)
    size = np.exp(rng.standard_normal(k))
    return (rng.standard_normal((tokens, k)) @ mix * size).astype(np.float32)


def observed(x: np.ndarray) -> InputStatistics:
    statistics = InputStatistics.empty(x.shape[1])
    statistics.add(x)
    return statistics


def weights(n: int, k: int, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n, k)) * 0.02).astype(np.float32)
