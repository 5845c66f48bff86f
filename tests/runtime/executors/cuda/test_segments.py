"""Engines with TensorRT segments, whose ONNX models onnxruntime runs on the emulated GPU's memory."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated_gpu import EmulatedGpu, stand_in_compiler
from emulated_tensorrt import VERSION, EmulatedTensorRt, stand_in_builder, stand_in_tensorrt

from enginesmith import LLM, SamplingParams, build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.executors.cuda import segments
from enginesmith.runtime.executors.cuda.facts import cuda_facts
from enginesmith.units import Bytes

TARGET = {"name": "cuda", "sm": "90", "dense": "tensorrt"}
LIMITS = {"max_num_tokens": 24, "max_batch_size": 4, "max_seq_len": 24, "kv_block_size": 16}
MODELS: dict[str, dict[str, object]] = {
    "llama": {"weights": "int4", "group_size": 32},
    "gemma3_text": {},
    "phi3": {"weights": "fp8"},
    "gpt2": {"weights": "int8"},
}
"""Families with what they are built with: all of them with ENGINESMITH_CUDA_MODELS=all."""
ALL = os.environ.get("ENGINESMITH_CUDA_MODELS") == "all"
GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
PROMPTS = [[5, 9, 2, 77, 31, 8, 120], [3, 3, 4]]


def config(**options: object) -> BuildConfig:
    return BuildConfig(**{**LIMITS, "target": TARGET, **options})  # type: ignore[arg-type]


@pytest.fixture
def trt(gpu: EmulatedGpu) -> Iterator[EmulatedTensorRt]:
    with stand_in_compiler(), stand_in_tensorrt(gpu) as emulated:
        yield emulated


@pytest.mark.parametrize("family", MODELS if ALL else ["llama"])
def test_logits_are_those_of_transformers(
    family: str,
    tiny_checkpoint: Callable[[str], Path],
    tmp_path: Path,
    trt: EmulatedTensorRt,
    gpu: EmulatedGpu,
):
    """The build's own check: it fails past the bar of the scheme."""
    report = build(tiny_checkpoint(family), tmp_path / "engine", config(**MODELS[family], max_seq_len=9))
    assert report.check is not None
    assert report.check.passed
    assert report.calls["Segment"] >= 2
    assert trt.runs
    assert gpu.held == 0


@pytest.fixture(scope="module")
def engine(tiny_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of llama in float32, unchecked."""
    folder = tmp_path_factory.mktemp("segments") / "engine"
    with stand_in_compiler(), pytest.MonkeyPatch.context() as patch:
        stand_in_builder(patch)
        build(tiny_checkpoint("llama"), folder, config(dtype="fp32", check=False))
    return folder


@pytest.fixture(scope="module")
def tokens(tiny_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What a CPU engine says to PROMPTS."""
    folder = tmp_path_factory.mktemp("cpu") / "engine"
    build(tiny_checkpoint("llama"), folder, BuildConfig(**LIMITS, dtype="fp32", check=False))  # type: ignore[arg-type]
    with LLM(folder, threads=1) as llm:
        return said(llm)


def said(llm: LLM) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, GREEDY)]


def open_llm(engine: Path) -> LLM:
    return LLM(engine, kv_cache_memory=Bytes(1 << 20))


def test_tokens_are_those_of_a_cpu_engine_with_graphs_that_hold_segments(
    engine: Path, trt: EmulatedTensorRt, gpu: EmulatedGpu, tokens: list[list[int]]
):
    before = gpu.graphs
    with open_llm(engine) as llm:
        assert said(llm) == tokens
    assert gpu.graphs > before
    assert len(trt.memories) == 1
    assert gpu.held == 0


def test_segments_that_cannot_be_captured_run_without_graphs(
    engine: Path, trt: EmulatedTensorRt, gpu: EmulatedGpu, tokens: list[list[int]], caplog: pytest.LogCaptureFixture
):
    trt.capturable, before = False, gpu.graphs
    with open_llm(engine) as llm:
        assert said(llm) == tokens
    assert gpu.graphs == before
    assert "cannot capture" in caplog.text


def test_the_manifest_promises_no_batch_invariance(engine: Path, trt: EmulatedTensorRt):
    facts = cuda_facts(open_engine(engine).manifest)
    assert not facts.batch_invariant
    assert facts.tensorrt == f"tensorrt_rtx {VERSION}"
    assert {path.name for path in (engine / "cuda/sm_90").glob("*.plan")} == {Path(plan).name for plan in facts.plans}


def test_another_tensorrt_is_named_with_what_to_do(
    engine: Path, trt: EmulatedTensorRt, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(segments, "version", lambda package: "0.1")
    with pytest.raises(
        EngineError, match=r"tensorrt_rtx 0\.1 is installed.*pip install tensorrt_rtx==0\.0, or rebuild"
    ):
        open_llm(engine)


def test_without_tensorrt_the_extra_is_named(engine: Path, gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch):
    def absent(package: str) -> str:
        raise segments.PackageNotFoundError(package)

    monkeypatch.setattr(segments, "version", absent)
    with pytest.raises(EngineError, match=r"not installed: pip install .*\[tensorrt\]'? tensorrt_rtx==0\.0"):
        open_llm(engine)
