"""Models with recurrent layers, with and without attention: Transformers' tokens, whoever shares the batch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from step_engine import StepEngine
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.errors import EngineError
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.units import Bytes

pytestmark = pytest.mark.slow

MIXER = {"mamba_d_state": 12, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_chunk_size": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "bamba": MIXER | {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_indices": [1], "pad_token_id": 0},
    "mamba2": {"num_heads": 4, "head_dim": 32, "state_size": 12, "n_groups": 2, "chunk_size": 4},
}
SEQUENCES = [np.random.default_rng(length).integers(3, 128, length).tolist() for length in (21, 1, 8)]


@pytest.fixture(scope="module", params=list(CONFIGS))
def built(request: pytest.FixtureRequest, quick_compiler: None, tmp_path_factory: pytest.TempPathFactory):
    """The engine and the model that it was built from, which the build has compared it with."""
    folder, kind = tmp_path_factory.mktemp(request.param), CONFIG_MAPPING[request.param]
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    config: Any = kind(**sizes, **CONFIGS[request.param], initializer_range=0.2)  # type: ignore[operator]
    torch.manual_seed(0)
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * (0.3 if tensor.ndim == 1 else 0.05))
    model.save_pretrained(folder / "checkpoint")
    stored = folder / "checkpoint" / "config.json"
    text = stored.read_text()
    bare = json.loads(text) | {"time_step_limit": [0.0, float("inf")]}  # as older versions write it
    stored.write_text(json.dumps(bare))
    options = {"dtype": "fp32", "max_seq_len": 64, "max_batch_size": 8, "max_num_tokens": 16}
    report = build(folder / "checkpoint", folder / "engine", BuildConfig.model_validate(options))
    assert report.check is not None
    assert report.check.distance < 1e-4
    return folder / "engine", model


def test_sequences_are_the_same_in_chunks_and_in_company(built: tuple[Path, Any]) -> None:
    engine = StepEngine(built[0])
    try:
        alone = [engine.run(tokens, *_chunks(len(tokens), 8)) for tokens in SEQUENCES]
        assert np.array_equal(engine.run(SEQUENCES[0], *_chunks(21, 5)), alone[0])
        first, second, third = (engine.add(tokens) for tokens in SEQUENCES)
        engine.step((first, 4), (third, 3))
        engine.step((third, 1), (second, 1), (first, 5))
        engine.step((first, 8))
        engine.step((first, 4), (third, 4))
        for sequence, logits in zip((first, second, third), alone, strict=True):
            assert np.array_equal(np.stack(sequence.logits), logits)
        first.done = 3
        with pytest.raises(EngineError, match="stands at token 21, not at 3"):
            engine.step((first, 1))
    finally:
        engine.close()


def _chunks(tokens: int, size: int) -> list[int]:
    return [min(size, tokens - start) for start in range(0, tokens, size)]


def test_tokens_are_those_of_transformers_preempted_or_not(built: tuple[Path, Any]) -> None:
    path, model = built
    with torch.inference_mode():
        expected = [
            model.generate(
                torch.tensor([tokens]), max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0
            )[0, len(tokens) :].tolist()
            for tokens in SEQUENCES
        ]
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    prompts = SEQUENCES * 2
    with LLM(path) as llm:
        state, groups = llm.manifest.state.slot_bytes, llm.manifest.kv_cache.groups
    memory = Bytes(2 * state + 3 * sum(group.bytes_per_block for group in groups))  # two sequences end with four blocks
    with LLM(path, kv_cache_memory=memory, capacity_policy="max_utilization", max_num_tokens=8) as llm:
        outputs = llm.generate(prompts, params)
        assert [output.outputs[0].token_ids for output in outputs] == expected * 2
        assert all(output.metrics.num_cached_tokens == 0 for output in outputs)
        assert bool(llm.engine.scheduler.num_preemptions) == bool(groups)
        assert llm.engine.kv.usage == 0


def test_states_are_computed_again_after_a_step_that_failed(
    built: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late ones, and after their states have gone on: every sequence is brought back to where it stands."""
    params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    with LLM(built[0]) as llm:
        expected = [llm.generate([tokens], params)[0].outputs for tokens in SEQUENCES]
        step, failures = llm.engine.executor.step, 0

        def faulty(slices: list, rows: list) -> None:
            nonlocal failures
            step(slices, rows)
            if len(slices) > 1 and slices[0].stop > len(SEQUENCES[0]) + 8 * (failures + 1):
                failures += 1
                raise EngineError("boom")

        monkeypatch.setattr(llm.engine.executor, "step", faulty)
        assert [output.outputs for output in llm.generate(SEQUENCES, params)] == expected
        assert failures == 2
