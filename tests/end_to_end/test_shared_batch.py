"""A real model's answers do not depend on who shares the batch, nor on preemption."""

from collections.abc import Callable
from pathlib import Path

import pytest
from real_configs import CONFIGS
from real_prompts import REAL_PROMPTS

from enginesmith import LLM, SamplingParams
from enginesmith.runtime.kv_cache.sizing import blocks_for

pytestmark = pytest.mark.slow

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)
SEEDED = [
    GREEDY.replace(temperature=1.2, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=seed)
    for seed in range(len(REAL_PROMPTS))
]


@pytest.mark.parametrize("precision", CONFIGS)
def test_batched_is_bit_for_bit_alone(engine_folder: Callable[..., Path], precision: str):
    prompts = REAL_PROMPTS[1::2]  # more than a batch; a few tokens, several steps of them
    params = [GREEDY if index % 2 else seeded for index, seeded in enumerate(SEEDED[: len(prompts)])]
    with LLM(engine_folder(precision), prefix_cache=False) as llm:
        alone = [llm.generate(p, one)[0].outputs[0] for p, one in zip(prompts, params, strict=True)]
        assert [output.outputs[0] for output in llm.generate(prompts, params)] == alone
        assert llm.engine.kv.usage == 0


@pytest.mark.parametrize("precision", ["bf16", "int4"])  # all of them in tests/runtime/test_shared_batch.py
def test_preemption_changes_no_bit(engine_folder: Callable[..., Path], precision: str):
    prompts = REAL_PROMPTS[-2:] * 2
    params = [one.replace(max_tokens=60) for one in SEEDED[:4]]
    with LLM(engine_folder(precision)) as llm:
        alone = [llm.generate(p, one)[0].outputs[0] for p, one in zip(prompts, params, strict=True)]
        kv, limits = llm.manifest.kv_cache, llm.manifest.limits
    longest = sum(
        blocks_for(group, kv.block_size, limits.max_seq_len, limits.max_num_tokens) * group.bytes_per_block
        for group in kv.groups
    )
    options = {"kv_cache_memory": longest, "capacity_policy": "max_utilization", "prefix_cache": False}
    with LLM(engine_folder(precision), **options) as llm:
        assert [output.outputs[0] for output in llm.generate(prompts, params)] == alone
        assert llm.engine.scheduler.num_preemptions > 0
        assert llm.engine.kv.usage == 0
