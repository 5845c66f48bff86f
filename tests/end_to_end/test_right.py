"""A real model says in an engine what it says in Transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_configs import CONFIGS
from real_prompts import REAL_PROMPTS

from enginesmith import LLM, SamplingParams
from enginesmith.builder.check import bars, compare

pytestmark = pytest.mark.slow

GREEDY = SamplingParams(temperature=0, max_tokens=24)
# The least share of rows, over the first tokens of REAL_PROMPTS, whose likeliest token is Transformers' own.
TOP1 = {"fp32": 1.0, "bf16": 0.97, "int8": 0.85, "int4": 0.85}

Logits = Callable[[list[int]], np.ndarray]


def test_greedy_text_is_that_of_transformers(llm: LLM, hf_logits: Logits, hf_tokenizer: Any):
    """Every token, to the end of the sequence or the last that may come, is the likeliest after all before it."""
    assert len(set(REAL_PROMPTS)) == 20
    for output in llm.generate(REAL_PROMPTS, GREEDY):
        prompt = hf_tokenizer(output.prompt)["input_ids"]
        assert output.prompt_token_ids == prompt
        said = output.outputs[0].token_ids
        assert len(said) == 24 or said[-1] in llm.manifest.model.eos_token_ids
        likeliest = hf_logits([*prompt, *said[:-1]])[len(prompt) - 1 :].argmax(axis=1)
        assert said == likeliest.tolist(), output.prompt
        assert output.outputs[0].text == hf_tokenizer.decode(said, skip_special_tokens=True)


@pytest.fixture(scope="module")
def tokens(hf_tokenizer: Any) -> list[list[int]]:
    return [hf_tokenizer(prompt)["input_ids"][:32] for prompt in REAL_PROMPTS]


@pytest.fixture(scope="module")
def expected(tokens: list[list[int]], hf_logits: Logits) -> np.ndarray:
    return np.concatenate([hf_logits(prompt) for prompt in tokens])


@pytest.mark.parametrize("precision", CONFIGS)
def test_logits_are_within_the_bars(
    precision: str, engine_folder: Callable[[str], Path], tokens: list[list[int]], expected: np.ndarray
):
    with LLM(engine_folder(precision)) as llm:
        found = np.concatenate([llm.compute_logits(prompt) for prompt in tokens])
    result = compare(found, expected, *bars(CONFIGS[precision]))
    assert result.passed, result
    assert result.top1 >= TOP1[precision], result
