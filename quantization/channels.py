"""Scales of input channels: positive, evenly about 1, and equal where channels are tied."""

import numpy as np

_WIDEST = 1e4  # a scale, or its inverse, is at most this


def largest_of_tied(values: np.ndarray, tied: np.ndarray | None) -> np.ndarray:
    """The largest of the non-negative values [K] of all channels that have the same number in `tied`, int [K]."""
    if tied is None:
        return values
    largest = np.zeros(tied.max(initial=0) + 1, values.dtype)
    np.maximum.at(largest, tied, values)
    return largest[tied]


def mean_of_tied(values: np.ndarray, tied: np.ndarray | None) -> np.ndarray:
    """The mean of the values [K] of all channels that have the same number in `tied`, int [K]."""
    if tied is None:
        return values
    mean = np.bincount(tied, values) / np.maximum(np.bincount(tied), 1)
    return mean[tied].astype(values.dtype)


def normalised(of_inputs: np.ndarray, of_weights: np.ndarray, up: float, down: float) -> np.ndarray:
    """of_inputs^up / of_weights^down, divided by the square root of its largest times its smallest, float32 [K].

    A channel of which either is 0 tells nothing and has scale 1.
    """
    known = (of_inputs > 0) & (of_weights > 0)
    log = np.zeros(len(of_inputs))
    log[known] = up * np.log(of_inputs[known], dtype=np.float64) - down * np.log(of_weights[known], dtype=np.float64)
    if known.any():
        log[known] -= (log[known].max() + log[known].min()) / 2
    return np.exp(np.clip(log, -np.log(_WIDEST), np.log(_WIDEST))).astype(np.float32)
