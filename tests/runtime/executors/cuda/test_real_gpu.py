"""Tiny models on a real GPU: `pytest -m gpu`. Each build compiles kernels, and is checked against Transformers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from enginesmith import LLM, SamplingParams, build
from enginesmith.builder.build_options import BuildConfig

pytestmark = pytest.mark.gpu

LIMITS = {"max_num_tokens": 64, "max_batch_size": 8, "max_seq_len": 96, "kv_block_size": 16}
MODELS = {
    "llama": {"dtype": "fp32"},
    "llama-bias": {"weights": "int8"},
    "qwen2": {},
    "gemma3_text": {"kv_cache": "int8"},
    "gpt2": {"weights": "int4", "group_size": 32},
    "phi3": {"weights": "fp8", "kv_cache": "fp8"},
    "mixtral": {"dtype": "fp32"},
    "gpt_oss": {"dtype": "fp32"},
}
PROMPTS = [[5, 9, 2, 77, 31, 8, 120], [3, 3, 4], [40 + i for i in range(40)], [7]]
PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_that_of_transformers_and_rows_stand_alone(
    family: str, tiny_checkpoint: Callable[[str], Path], tmp_path: Path
):
    engine = tmp_path / "engine"
    report = build(tiny_checkpoint(family), engine, BuildConfig(target="cuda", **LIMITS, **MODELS[family]))  # type: ignore
    assert report.check is not None
    assert report.check.passed
    with LLM(engine, warm_up=True, prefix_cache=False) as llm:
        together = [output.outputs[0].token_ids for output in llm.generate(PROMPTS, PARAMS)]
        alone = [llm.generate([prompt], PARAMS)[0].outputs[0].token_ids for prompt in PROMPTS]
        assert together == alone
        whole = llm.compute_logits(PROMPTS[2])
        np.testing.assert_array_equal(llm.compute_logits(PROMPTS[2], chunks=[1, 17, 22]), whole)
        drawn = llm.generate([PROMPTS[0]], SamplingParams(temperature=1.0, seed=5, max_tokens=4, logprobs=2))
        assert len(drawn[0].outputs[0].token_ids) > 0
