"""Small networks written as ONNX text, built for the cpu target and run."""

import shutil
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.weights_file import write_weights
from enginesmith.builder.targets.cpu import toolchain
from enginesmith.builder.targets.cpu.plan import plan
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.cpu.packing import layout_of_weight
from enginesmith.plugins.sampling.cpu.library import SOURCE
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.executors.cpu_abi import ABI_VERSION
from enginesmith.runtime.executors.cpu_facts import CpuFacts
from enginesmith.runtime.executors.executor import SequenceSlice
from enginesmith.runtime.manifest import KvCacheSpec, KvDtype, Limits, Manifest, ModelFacts, Quantization

CONFIG = BuildConfig(dtype="fp32", max_num_tokens=40, max_batch_size=8, kv_block_size=16, check=False)


Run = Callable[[SmallNetwork, list[int]], np.ndarray]


@pytest.fixture
def run_network(tmp_path: Path, quick_compiler: None) -> Run:
    """Builds a network in float32 for AVX2 and gives the logits of every token of one step."""

    def run(small: SmallNetwork, input_ids: list[int]) -> np.ndarray:
        packed = partial(layout_of_weight, isa=Isa.AVX2)
        planned = plan(small.network(), CONFIG, Isa.AVX2, max_seq_len=64)
        write_weights(tmp_path / "weights.bin", planned.program, packed, small.parameters.__getitem__)
        library = toolchain.compile_source(planned.source, Isa.AVX2)
        (tmp_path / "engine.so").write_bytes(library.read_bytes())
        shutil.copyfile(toolchain.compile_source(SOURCE.read_text(), Isa.AVX2), tmp_path / "sampler.so")
        manifest = _manifest(small.width, planned.program.weights_bytes)
        executor = CpuExecutor(tmp_path, manifest, [], threads=2)
        try:
            parts = []
            for first in range(0, len(input_ids), CONFIG.max_batch_size):
                rows = range(first, min(first + CONFIG.max_batch_size, len(input_ids)))
                executor.step([SequenceSlice(array("i", input_ids), 0, len(input_ids), [array("i", [0])])], rows)
                parts.append(executor.logits())
            return np.concatenate(parts)
        finally:
            executor.close()

    return run


def _manifest(width: int, weights_bytes: int) -> Manifest:
    return Manifest(
        builder_version="0",
        model=ModelFacts(
            name="test", architecture="Test", model_type="test", vocab_size=width, num_layers=0, num_parameters=0,
            eos_token_ids=(),
        ),
        limits=Limits(max_batch_size=CONFIG.max_batch_size, max_num_tokens=CONFIG.max_num_tokens, max_seq_len=64),
        kv_cache=KvCacheSpec(block_size=16, dtype=KvDtype.FP32, groups=()),
        quantization=Quantization(scheme="fp32"),
        target=CpuFacts(
            name="cpu", isa="avx2", cpu_flags=(), library="engine.so", weights="weights.bin",
            weights_bytes=weights_bytes, abi_version=ABI_VERSION, sampler="sampler.so", arena_bytes=0,
        ),
    )  # fmt: skip


@pytest.fixture
def small_network() -> type[SmallNetwork]:
    return SmallNetwork
