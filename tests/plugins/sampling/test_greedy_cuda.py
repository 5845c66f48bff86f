"""Greedy sampling in Triton: the token that the CPU takes, and the faults that it reports."""

import numpy as np
import pytest
import torch
from triton_interpreter import interpret

from enginesmith.plugins.sampling.cuda.greedy import greedy_kernel
from enginesmith.plugins.sampling.reference import Sampling, sample


def greedy(logits: torch.Tensor, block: int = 64) -> list[int]:
    tokens = torch.full((len(logits),), -9, dtype=torch.int32)
    constants = {"VOCABULARY": logits.shape[1], "LOGITS_ROW": logits.stride(0), "BLOCK": block}
    interpret(greedy_kernel, (len(logits),), logits, tokens, **constants)
    return tokens.tolist()


@pytest.mark.parametrize("vocabulary", [1, 63, 64, 200])
def test_takes_the_largest_logit_and_of_equals_the_lowest_id(vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    logits = rng.integers(-4, 4, (6, vocabulary)).astype(np.float32)
    found = greedy(torch.from_numpy(logits))
    assert found == [sample(row, Sampling(temperature=0)) for row in logits]


def test_infinitely_small_logits_are_passed_over() -> None:
    logits = torch.full((2, 100), -float("inf"))
    logits[0, 70], logits[1, 3] = -1e30, 5
    assert greedy(logits) == [70, 3]


def test_rows_that_have_no_token_say_why() -> None:
    logits = torch.zeros(4, 130)
    logits[0, 129], logits[1, 5], logits[1, 90] = float("nan"), float("inf"), float("nan")
    logits[2, 64], logits[3] = float("inf"), -float("inf")
    assert greedy(logits) == [-1, -1, -2, -3]
