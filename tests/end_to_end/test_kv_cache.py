"""A real model over a KV cache in int8 and FP8: close to a cache in bf16, and the same bits alone and batched."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from real_prompts import REAL_PROMPTS

from enginesmith import LLM, SamplingParams
from enginesmith.builder.check import compare

pytestmark = pytest.mark.slow

# The largest mean KL divergence from a cache in bf16, in nats, over all rows of REAL_PROMPTS.
KL = {"int8": 0.01, "fp8": 0.05}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module")
def expected(engine_folder: Callable[..., Path]) -> np.ndarray:
    return logits_of(engine_folder("bf16"))


def logits_of(engine: Path) -> np.ndarray:
    with LLM(engine) as llm:
        return np.concatenate([llm.compute_logits(llm.tokenizer.encode(prompt)) for prompt in REAL_PROMPTS])


@pytest.mark.parametrize("kind", KL)
def test_logits_are_close_to_those_of_a_plain_cache(
    engine_folder: Callable[..., Path], expected: np.ndarray, kind: str
) -> None:
    result = compare(logits_of(engine_folder("bf16", kind)), expected, np.inf, KL[kind])
    assert result.passed, result
    assert result.top1 > 0.9, result


@pytest.mark.parametrize("kind", KL)
def test_batched_is_bit_for_bit_alone(engine_folder: Callable[..., Path], kind: str) -> None:
    prompts = REAL_PROMPTS[::3]
    with LLM(engine_folder("bf16", kind), prefix_cache=False) as llm:
        alone = [llm.generate(prompt, GREEDY)[0].outputs[0] for prompt in prompts]
        assert [output.outputs[0] for output in llm.generate(prompts, GREEDY)] == alone
