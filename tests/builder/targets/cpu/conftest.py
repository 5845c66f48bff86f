"""Small networks written as ONNX text, built for the cpu target and run."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.weights_file import write_weights
from enginesmith.builder.network import Network, Parameter
from enginesmith.builder.targets.cpu import toolchain
from enginesmith.builder.targets.cpu.plan import plan
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.cpu.packing import layout_of_weight
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.executors.cpu_abi import ABI_VERSION
from enginesmith.runtime.executors.cpu_facts import CpuFacts
from enginesmith.runtime.executors.executor import SequenceSlice
from enginesmith.runtime.manifest import KvCacheSpec, KvDtype, Limits, Manifest, ModelFacts, Quantization

CONFIG = BuildConfig(dtype="fp32", max_num_tokens=40, max_batch_size=8, kv_block_size=16, check=False)
_INPUTS = ("input_ids", "position_ids", "logits_rows")


@dataclass
class SmallNetwork:
    """A network whose text is `body` between the standard inputs and `logits`, with parameters of the given values.

    `declared`: types of values whose shape ONNX does not infer.
    """

    body: str
    width: int
    parameters: dict[str, np.ndarray]
    declared: str = ""

    def network(self) -> Network:
        sizes = {name: ",".join(map(str, value.shape)) for name, value in self.parameters.items()}
        parameters = "".join(f", float[{size}] {name}" for name, size in sizes.items())
        text = (
            '<ir_version: 10, opset_import: ["" : 23, "enginesmith" : 1]>\n'
            f"g (int64[T] input_ids, int64[T] position_ids, int64[R] logits_rows{parameters})"
            f" => (float[R, {self.width}] logits) {f'<{self.declared}>' * bool(self.declared)} {{\n{self.body}\n}}"
        )
        proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
        model = ir.from_proto(proto)
        for value in list(model.graph.inputs):
            if value.name not in _INPUTS:
                model.graph.inputs.remove(value)
                model.graph.initializers[str(value.name)] = value
        for node in list(model.graph):
            if node.op_type == "Constant":
                value = node.outputs[0]
                value.const_value = ir.convenience.get_const_tensor(value)
                node_value = ir.Value(
                    name=value.name, shape=value.shape, type=value.type, const_value=value.const_value
                )
                value.replace_all_uses_with(node_value)
                model.graph.remove(node, safe=True)
                model.graph.initializers[str(value.name)] = node_value
        known = {name: Parameter(name, value.shape) for name, value in self.parameters.items()}
        return Network(model, known, {}, [], {}, "TestForCausalLM", "", self.width, 0)


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
            weights_bytes=weights_bytes, abi_version=ABI_VERSION,
        ),
    )  # fmt: skip


@pytest.fixture
def small_network() -> type[SmallNetwork]:
    return SmallNetwork
