"""LongRoPE: engines give what Transformers gives for a sequence of each length, also one that grows past the switch."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import FAMILIES

from enginesmith import LLM, BuildConfig, SamplingParams, build
from enginesmith.builder.reference import load_reference
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.errors import BuildError

pytestmark = pytest.mark.slow

CONFIG = BuildConfig(dtype="fp32", max_num_tokens=24, max_batch_size=8, kv_block_size=16, target=CpuOptions(isa="avx2"))
ORIGINAL = FAMILIES["phi3-longrope"]["original_max_position_embeddings"]
PROMPTS = [
    [3 + (37 * i + n) % 125 for i in range(n)] for n in (5, 20, ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, 50)
]  # no 0, which pads


@pytest.fixture(scope="module")
def engine(tiny_checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("engines") / "longrope"
    report = build(tiny_checkpoint("phi3-longrope"), output, CONFIG)
    (note,) = report.notes
    assert note.startswith(f"sequences of more than {ORIGINAL} tokens take the long factors of LongRoPE")
    return output


@pytest.fixture(params=["guaranteed_no_evict", "max_utilization"])
def llm(engine: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    memory = None if request.param == "guaranteed_no_evict" else 200_000  # room for two or three sequences
    with LLM(engine, threads=2, capacity_policy=request.param, kv_cache_memory=memory) as llm:
        yield llm


def test_text_is_that_of_generate(tiny_checkpoint, llm: LLM) -> None:
    import torch

    model = load_reference(open_checkpoint(tiny_checkpoint("phi3-longrope")))
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    for prompt, output in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        with torch.inference_mode():
            expected = model.generate(
                torch.tensor([prompt]), max_new_tokens=60, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        assert output.outputs[0].token_ids == expected[0, len(prompt) :].tolist()


def test_company_changes_nothing(llm: LLM) -> None:
    params = SamplingParams(temperature=1, seed=7, max_tokens=40, ignore_eos=True, logprobs=1)
    together = llm.generate(PROMPTS, params)
    for prompt, output in zip(PROMPTS, together, strict=True):
        assert llm.generate([prompt], params)[0].outputs == output.outputs
    assert llm.engine.kv.usage == 0


def test_the_check_sees_a_wrong_choice(tiny_checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("enginesmith.builder.trace.trace_model.switch_rope", lambda model, max_seq_len: None)
    with pytest.raises(BuildError, match="distance"):
        build(tiny_checkpoint("phi3-longrope"), tmp_path / "engine", CONFIG)
