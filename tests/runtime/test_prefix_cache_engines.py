"""Real kernels on a warm cache: the bits of every row of logits, and every token, are those of a cold one."""

from pathlib import Path

import numpy as np
import pytest

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.outputs import RequestOutput
from enginesmith.runtime.sampling_params import SamplingParams

pytestmark = pytest.mark.slow

PARAMS = SamplingParams(seed=1, max_tokens=12, ignore_eos=True, logprobs=5)
PROMPTS = [[3 + (37 * i + 11) % 120 for i in range(length)] for length in (5, 17, 40, 64, 90)]
PROMPTS += [[*PROMPTS[-1][:50], 7, 8, 9], [9, *PROMPTS[2]]]


def serve(llm: LLM, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> tuple[list[RequestOutput], list]:
    """One after another: the outputs, and of each the logits its tokens were drawn from."""
    rows: list[np.ndarray] = []
    step, executor = llm.engine.executor.step, llm.engine.executor
    with monkeypatch.context() as patch:

        def kept(slices: list, logits_rows: list) -> None:
            step(slices, logits_rows)
            if logits_rows:
                rows.append(executor.logits())  # type: ignore[attr-defined]

        patch.setattr(executor, "step", kept)
        outputs = [llm.generate([prompt], PARAMS)[0] for prompt in prompts]
    return outputs, rows


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"kv_cache": "int8"}),
        ("gemma2", {}),
        ("gemma2", {"kv_cache": "int8", "weights": "int8"}),
    ],
    ids=str,
)
def test_warm_and_cold(
    tiny_checkpoint, tmp_path: Path, family: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    limits = {"max_batch_size": 4, "max_num_tokens": 24, "max_seq_len": 128, "kv_block_size": 16}
    config = BuildConfig.model_validate({**options, **limits, "check": False})
    build(tiny_checkpoint(family), tmp_path / "engine", config)
    twice = [prompt for prompt in PROMPTS for _ in range(2)]
    with LLM(tmp_path / "engine", threads=2, prefix_cache=False) as llm:
        cold, cold_rows = serve(llm, twice, monkeypatch)
    with LLM(tmp_path / "engine", threads=2) as llm:
        warm, warm_rows = serve(llm, twice, monkeypatch)
        assert llm.engine.kv.usage == 0
    assert [output.metrics.num_cached_tokens for output in warm[1::2]] == [0, 16, 32, 48, 80, 48, 32]
    assert [output.outputs for output in warm] == [output.outputs for output in cold]
    assert len(warm_rows) == len(cold_rows) == 12 * len(twice)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(warm_rows, cold_rows, strict=True))
