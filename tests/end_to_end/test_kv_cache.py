"""A real model over a KV cache in int8 and FP8: close to a cache in bf16, and the same bits alone and batched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_configs import CONFIGS
from real_prompts import REAL_PROMPTS

from enginesmith import LLM, SamplingParams, build
from enginesmith.builder.check import compare

pytestmark = pytest.mark.slow

# The largest mean KL divergence from a cache in bf16, in nats, over all rows of REAL_PROMPTS.
KL = {"int8": 0.01, "fp8": 0.05}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module", params=["int8", "fp8"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def engine(smollm2: Path, tmp_path_factory: pytest.TempPathFactory, kind: Any) -> Path:
    output = tmp_path_factory.mktemp("kv") / kind
    build(smollm2, output, CONFIGS["bf16"].model_copy(update={"kv_cache": kind}))
    return output


def logits_of(engine: Path) -> np.ndarray:
    with LLM(engine) as llm:
        return np.concatenate([llm.compute_logits(llm.tokenizer.encode(prompt)) for prompt in REAL_PROMPTS])


def test_logits_are_close_to_those_of_a_plain_cache(
    engine_folder: Callable[[str], Path], engine: Path, kind: str
) -> None:
    result = compare(logits_of(engine), logits_of(engine_folder("bf16")), np.inf, KL[kind])
    assert result.passed, result
    assert result.top1 > 0.9, result


def test_batched_is_bit_for_bit_alone(engine: Path) -> None:
    prompts = REAL_PROMPTS[::3]
    with LLM(engine, prefix_cache=False) as llm:
        alone = [llm.generate(prompt, GREEDY)[0].outputs[0] for prompt in prompts]
        assert [output.outputs[0] for output in llm.generate(prompts, GREEDY)] == alone
