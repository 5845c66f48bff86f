"""Whole models on the emulated GPU: built, checked against Transformers, and served as a CPU engine serves them.

A step takes half a second of interpreting: one family is tried with short prompts, all of them, with the prompts of a
build, with ENGINESMITH_CUDA_MODELS=all.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import LAUNCH_FAILED, OUT_OF_MEMORY, EmulatedGpu, stand_in_compiler

from enginesmith import LLM, SamplingParams, build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.executors.cuda.graphs import DecodeGraphs
from enginesmith.units import Bytes

LIMITS = {"max_num_tokens": 24, "max_batch_size": 24, "max_seq_len": 64, "kv_block_size": 16}
CUDA = {"name": "cuda", "sm": "90", "tactics": "table"}
PROMPTS = [[5, 9, 2, 77, 31, 8, 120], [3, 3, 4]]
LONG_PROMPTS = [[5 + i for i in range(31)], [40 - i for i in range(31)]]
GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)

MODELS = {
    "llama": {"dtype": "fp32"},
    "llama-bias": {"weights": "int8"},
    "qwen2": {},
    "gemma3_text": {"kv_cache": "int8"},
    "gpt2": {"weights": "int4", "group_size": 32},
    "phi3": {"weights": "fp8", "kv_cache": "fp8"},
    "stablelm": {},
}
"""Families with what they are built with; the check that ends a build has a bar for each."""
ALL = os.environ.get("ENGINESMITH_CUDA_MODELS") == "all"


def config(**options: object) -> BuildConfig:
    return BuildConfig(**{**LIMITS, "target": CUDA, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("family", MODELS if ALL else ["gemma3_text"])
def test_logits_are_those_of_transformers(
    family: str, tiny_checkpoint: Callable[[str], Path], tmp_path: Path, gpu: EmulatedGpu
):
    """The build's own check: it fails past the bar of the scheme."""
    with stand_in_compiler():
        options = MODELS[family] if ALL else MODELS[family] | {"max_seq_len": 9}
        report = build(tiny_checkpoint(family), tmp_path / "engine", config(**options))
    assert report.check is not None
    assert report.check.passed
    assert gpu.held == 0


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Callable[[str], Path]) -> Path:
    return tiny_checkpoint("llama")


@pytest.fixture(scope="module")
def engine(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In float32, unchecked."""
    folder = tmp_path_factory.mktemp("cuda") / "engine"
    with stand_in_compiler():
        build(checkpoint, folder, config(dtype="fp32", check=False))
    return folder


@pytest.fixture(scope="module")
def tokens(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What a CPU engine says to PROMPTS, then to LONG_PROMPTS."""
    folder = tmp_path_factory.mktemp("cpu") / "engine"
    build(checkpoint, folder, BuildConfig(**LIMITS, dtype="fp32", check=False))  # type: ignore[arg-type]
    with LLM(folder, threads=1) as llm:
        return [*said(llm), *said(llm, LONG_PROMPTS, GREEDY.replace(max_tokens=5))]


@pytest.fixture
def llm(engine: Path, gpu: EmulatedGpu) -> Iterator[LLM]:
    with LLM(engine, kv_cache_memory=Bytes(1 << 20)) as llm:
        yield llm
    assert gpu.held == 0


def said(llm: LLM, prompts: list[list[int]] = PROMPTS, params: SamplingParams = GREEDY) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, params)]


def test_tokens_are_those_of_a_cpu_engine_together_and_alone(llm: LLM, gpu: EmulatedGpu, tokens: list[list[int]]):
    before = gpu.graphs
    assert said(llm) == tokens[:2]
    assert gpu.graphs > before
    assert said(llm, PROMPTS[:1]) == tokens[:1]


def test_chunks_change_no_bit(llm: LLM):
    prompt = [7, 1, 9, 4, 4, 2, 11, 60, 3, 5]
    whole = llm.compute_logits(prompt)
    np.testing.assert_array_equal(llm.compute_logits(prompt, chunks=[3, 1, 6]), whole)


def test_preempted_requests_say_the_same(engine: Path, gpu: EmulatedGpu, tokens: list[list[int]]):
    """Five blocks of 16 tokens: one request takes a third for its token 33, and the other finds none for its own."""
    block = open_engine(engine).manifest.kv_cache.groups[0].bytes_per_block
    with LLM(engine, kv_cache_memory=Bytes(5 * block), capacity_policy="max_utilization", prefix_cache=False) as llm:
        outputs = llm.generate(LONG_PROMPTS, GREEDY.replace(max_tokens=5))
    assert [list(output.outputs[0].token_ids) for output in outputs] == tokens[2:]
    assert sum(output.metrics.num_preemptions for output in outputs) > 0


def test_without_graphs_the_same(llm: LLM, monkeypatch: pytest.MonkeyPatch, tokens: list[list[int]]):
    monkeypatch.setattr(DecodeGraphs, "bucket", lambda self, sequences: 0)
    assert said(llm, PROMPTS[:1]) == tokens[:1]


def test_a_fault_that_passes_costs_no_request_its_answer(llm: LLM, gpu: EmulatedGpu, tokens: list[list[int]]):
    gpu.fail(50, OUT_OF_MEMORY)
    assert said(llm) == tokens[:2]


def test_a_broken_device_ends_the_requests_and_the_next_engine_runs(
    engine: Path, gpu: EmulatedGpu, tokens: list[list[int]]
):
    with LLM(engine, kv_cache_memory=Bytes(1 << 20)) as llm:
        gpu.fail(40, LAUNCH_FAILED)
        with pytest.raises(EngineError, match="the GPU failed in"):
            llm.generate(PROMPTS, GREEDY)
    assert gpu.held == 0
    with LLM(engine, kv_cache_memory=Bytes(1 << 20)) as llm:
        assert said(llm, PROMPTS[1:]) == tokens[1:2]
