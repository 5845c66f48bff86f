"""Logits of prompts, whichever steps they are made in."""

from pathlib import Path

import numpy as np
import pytest

from enginesmith import LLM
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.logits import PromptRunner

TOKENS = list(range(100, 141))


@pytest.mark.parametrize("rows", [None, 41, 40, 25, 6, 1])
def test_the_last_rows_are_those_of_the_whole_prompt(toy_engine: Path, rows: int | None) -> None:
    with LLM(toy_engine, threads=1) as llm:
        whole = llm.compute_logits(TOKENS)
    with PromptRunner(open_engine(toy_engine), len(TOKENS)) as runner:
        np.testing.assert_array_equal(runner.logits(TOKENS, rows), whole[-(rows or 41) :])
        np.testing.assert_array_equal(runner.logits(TOKENS[:7]), whole[:7])  # after another prompt
