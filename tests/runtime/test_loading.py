"""What options of a run make of an engine's own limits."""

from dataclasses import replace
from pathlib import Path

import pytest
from kv_groups import full, spec

from enginesmith.errors import EngineError
from enginesmith.runtime.executors.cpu_facts import cpu_facts
from enginesmith.runtime.kv_cache.sizing import num_blocks
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.loading import cache_memory
from enginesmith.runtime.manifest import Limits, Manifest
from enginesmith.runtime.runtime_config import RuntimeConfig
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.units import Bytes, read_size


def test_the_memory_of_the_cache(toy_manifest: Manifest, monkeypatch: pytest.MonkeyPatch):
    target = replace(cpu_facts(toy_manifest), weights_bytes=900, arena_bytes=100)
    monkeypatch.setattr("enginesmith.runtime.executors.cpu_backend.available_memory", lambda: 6400)
    monkeypatch.setattr("enginesmith.runtime.executors.cpu_backend.total_memory", lambda: 8000)
    assert cache_memory(RuntimeConfig(), target) == (3200, "half of the memory available")
    assert cache_memory(RuntimeConfig(kv_cache_memory=Bytes(77)), target) == (77, "kv_cache_memory")
    left, source = cache_memory(RuntimeConfig(memory_utilization=0.5), target)
    assert left == 3000
    with pytest.raises(
        EngineError, match=r"needs 3\.2 kB .* memory_utilization 0\.5 leaves beside 1\.0 kB .* is 3\.0 kB"
    ):
        num_blocks(spec(full(200)), Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=64), left, source)


def test_max_num_seqs(toy_engine: Path):
    params = SamplingParams(seed=1, max_tokens=5, ignore_eos=True)
    prompts = [[5 + i] for i in range(5)]
    with LLM(toy_engine, threads=1) as llm:
        expected = [output.outputs for output in llm.generate(prompts, params)]
    with LLM(toy_engine, RuntimeConfig(threads=1, max_num_seqs=2, warm_up=True)) as llm:
        assert [output.outputs for output in llm.generate(prompts, params)] == expected
        assert llm.stats().totals.num_steps > 12
    with pytest.raises(EngineError, match=r"max_num_seqs must be at most 6, the engine's max_batch_size, got 7"):
        LLM(toy_engine, max_num_seqs=7)


def test_max_num_tokens(toy_engine: Path):
    params = SamplingParams(seed=1, max_tokens=5, ignore_eos=True)
    with LLM(toy_engine, threads=1) as llm:
        expected = [output.outputs for output in llm.generate([[5, 6, 7, 8, 9]], params)]
        whole = llm.stats().totals
    with LLM(toy_engine, threads=1, max_num_tokens=2) as llm:
        assert [output.outputs for output in llm.generate([[5, 6, 7, 8, 9]], params)] == expected
        chunked = llm.stats().totals
    assert (whole.num_steps, chunked.num_steps) == (5, 7)  # a prompt of 5 tokens: one step, or 2 + 2 + 1
    with pytest.raises(EngineError, match=r"max_num_tokens must be at most \d+, the engine's max_num_tokens, got 9999"):
        LLM(toy_engine, max_num_tokens=9999)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_tokens": 0}, "max_num_tokens must be an integer of at least 1, got 0"),
        ({"max_num_seqs": 0}, "max_num_seqs must be an integer of at least 1, got 0"),
        ({"memory_utilization": 1.5}, r"memory_utilization must be a number in \(0, 1\], got 1\.5"),
        ({"memory_utilization": True}, "got True"),
        ({"memory_utilization": 0.5, "kv_cache_memory": 1}, "both size the KV cache"),
        ({"prefix_cache": 1}, "prefix_cache must be True or False, got 1"),
        ({"warm_up": "yes"}, "warm_up must be True or False, got 'yes'"),
        ({"thread": 1}, "unknown option 'thread'; known are threads, kv_cache_memory"),
        ({"config": RuntimeConfig(), "threads": 1}, "give a config or options, not both: threads"),
    ],
)
def test_bad_options(toy_engine: Path, options: dict[str, object], message: str):
    with pytest.raises(EngineError, match=message):
        LLM(toy_engine, **options)  # type: ignore[arg-type]


def test_sizes_as_people_give_them():
    sizes = [read_size(text) for text in ("2GB", "512 MiB", "1.5k", "7", "7b", "much", "-1", "1TB")]
    assert sizes == [2 * 10**9, 512 << 20, 1500, 7, 7, None, None, None]
