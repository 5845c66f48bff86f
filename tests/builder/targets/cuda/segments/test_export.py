"""The models of segments, run by onnxruntime, beside the network's operations in NumPy with the same weights."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from emulated_tensorrt import SegmentModel
from evaluate_network import OPERATIONS

from enginesmith.builder.bind import bind_network
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.program import LinearWeight
from enginesmith.builder.lowering.weights_file import matrices_of
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.builder.targets.cuda.plan import CudaPlan, plan
from enginesmith.builder.targets.cuda.segments.call import SegmentCall
from enginesmith.builder.targets.cuda.segments.export import IR_VERSION, OPSET, export
from enginesmith.builder.targets.cuda.segments.tensorrt import TensorRt
from enginesmith.builder.targets.cuda.source.standard import StandardGraph, rows_first
from enginesmith.builder.trace.trace import trace
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.plugins.linear.cuda.standard import product
from enginesmith.progress import NoProgress
from enginesmith.quantization.fp8 import nearest
from enginesmith.quantization.scheme import ActivationScheme, LinearScheme, WeightType

TOKENS = np.array([5, 9, 2, 77, 31, 8, 120])
ENGINE = TensorRt("tensorrt_rtx", "0")


class Model:
    """A tiny model's network, planned for segments."""

    def __init__(self, checkpoint: Path, **options: Any) -> None:
        opened = open_checkpoint(checkpoint)
        self.network = trace(opened.config, max_seq_len=64, progress=NoProgress())
        weights = bind_network(self.network, opened, None)
        optimize(self.network)
        self.read = weights.read
        config = BuildConfig(max_num_tokens=24, max_batch_size=4, target=CudaOptions(sm="90"), **options)
        self.plan: CudaPlan = plan(self.network, config, 90, 64, weights.stored, weights.kv_scales, tensorrt=ENGINE)
        self.calls = [call for call in self.plan.program.calls if isinstance(call, SegmentCall)]

    def values(self) -> dict[str, np.ndarray]:
        """Every value of the network for a step of TOKENS, all rows kept, with weights as they are stored."""
        weights = [weight for call in self.calls for weight in call.segment.weights]
        stored = {name: data for weight in weights for name, data in self.stored(weight).items()}
        places = np.arange(len(TOKENS))
        values: dict[str, Any] = {"input_ids": TOKENS, "position_ids": places, "logits_rows": places}
        for name, value in self.network.graph.initializers.items():
            data = value.const_value
            values[name] = np.asarray(self.read(name)[(slice(None),)], np.float32) if data is None else data.numpy()
        values |= stored
        for node in self.network.graph:
            arguments = [None if value is None else values[str(value.name)] for value in node.inputs]
            attributes = {name: attribute.value for name, attribute in node.attributes.items()}
            results = OPERATIONS[node.op_type](node, attributes, [len(TOKENS)], *arguments)
            made = zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True)
            values |= {str(out.name): data for out, data in made if out.name not in stored}
        return values

    def stored(self, weight: LinearWeight) -> Mapping[str, np.ndarray]:
        found = {}
        for source, rows in zip(weight.sources, matrices_of(weight, 0, self.read), strict=True):
            matrix = rows(0, weight.n)
            data = matrix if isinstance(matrix, np.ndarray) else matrix.dequantize(weight.scheme.weight.group_size)
            found[str(source.name)] = data.T if weight.transposed else data
        return found

    def run(self, call: SegmentCall, values: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """What onnxruntime makes of a segment's inputs, and what it should."""
        assert self.plan.segments is not None
        model = SegmentModel(ir.to_proto(export(call, self.plan.segments.setting, self.read)))

        def in_rows(value: ir.Value, view: Any) -> np.ndarray:
            return np.transpose(values[str(value.name)], rows_first(view.shape))

        pairs = zip(call.segment.inputs, call.inputs, strict=True)
        given = {f"input_{number}": in_rows(*pair) for number, pair in enumerate(pairs)}
        found = model.run(given)
        pairs = zip(call.segment.outputs, call.outputs, strict=True)
        return [(found[f"output_{number}"].astype(np.float32), in_rows(*pair)) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("family", "options", "distance"),
    [
        ("llama", {"dtype": "fp32"}, 1e-4),
        ("gemma3_text", {}, 0.05),
        ("gpt2", {"weights": "int4", "group_size": 32}, 0.05),
        ("llama-bias", {"weights": "int8"}, 0.05),
        ("phi3", {"weights": "fp8"}, 0.05),
        ("cohere", {"dtype": "fp32", "weights": "int4", "group_size": 16}, 0.01),
    ],
)
def test_segments_compute_what_the_network_does(
    family: str, options: dict[str, Any], distance: float, tiny_checkpoint: Callable[[str], Path]
):
    """`distance`: of an element, over the spread of its tensor; products, or results at least, are bf16 in most."""
    model = Model(tiny_checkpoint(family), **options)
    values = model.values()
    assert len(model.calls) >= 2
    for call in model.calls:
        for found, expected in model.run(call, values):
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() < distance * expected.std()


@pytest.mark.parametrize(("type_", "scale"), [(WeightType.FP8, 0.01), (WeightType.INT8, 0.02)])
def test_inputs_of_a_static_scale_are_rounded(type_: WeightType, scale: float, tiny_checkpoint: Callable[[str], Path]):
    model = Model(tiny_checkpoint("llama"), dtype="fp32", weights=type_.value)
    assert model.plan.segments is not None
    segment = model.calls[0].segment
    (node,), (weight,) = (n for n in segment.nodes if n.op_type == "Linear"), segment.weights
    weight.scheme, weight.input_scale = LinearScheme(weight.scheme.weight, ActivationScheme.STATIC), scale
    graph = StandardGraph(model.plan.segments.setting, model.read)
    x = ir.Value(name="input_0", shape=ir.Shape(["rows", 1, weight.k]), type=ir.TensorType(ir.DataType.FLOAT))
    y = product(graph, node, x, weight)
    y.name, y.shape, y.type = "output_0", ir.Shape(["rows", 1, weight.n]), ir.TensorType(ir.DataType.FLOAT)
    made = ir.Graph([x], [y], nodes=graph.nodes, initializers=graph.initializers, opset_imports={"": OPSET})
    data = np.random.default_rng(1).normal(size=(5, 1, weight.k)).astype(np.float32)
    found = SegmentModel(ir.to_proto(ir.Model(made, ir_version=IR_VERSION))).run({"input_0": data})["output_0"]
    steps = data / np.float32(scale)
    rounded = nearest(steps) if type_ is WeightType.FP8 else np.clip(np.rint(steps), -128, 127)
    (matrix,) = model.stored(weight).values()
    np.testing.assert_allclose(found, rounded * np.float32(scale) @ matrix.T, rtol=1e-4, atol=1e-4)
    assert np.abs(found - data @ matrix.T).max() > 1e-3


def test_the_network_stays_as_it_is_and_each_node_is_computed_once(tiny_checkpoint: Callable[[str], Path]):
    model = Model(tiny_checkpoint("llama"))
    before = [(node.op_type, [str(out.name) for out in node.outputs]) for node in model.network.graph]
    assert "Segment" not in {name for name, _ in before}
    assert model.plan.segments is not None
    cut = model.plan.segments.cut
    kept = [str(out.name) for node in cut.network.graph for out in node.outputs if node.op_type != "Segment"]
    inside = [str(out.name) for segment in cut.segments for node in segment.nodes for out in node.outputs]
    assert sorted([*kept, *inside]) == sorted(name for _, names in before for name in names)
    assert not any(node.op_type == "PagedAttention" for segment in cut.segments for node in segment.nodes)
    assert list(cut.kept) == ["linear_14"]


def test_a_weight_that_segments_hold_is_not_in_weights_bin(tiny_checkpoint: Callable[[str], Path]):
    model = Model(tiny_checkpoint("llama"))
    program = model.plan.program
    assert [str(weight.sources[0].name) for weight in program.packed_weights] == ["lm_head.weight"]
    assert len(program.linear_weights) == 9
    assert model.plan.facts().plans_bytes > sum(weight.nbytes for weight in program.linear_weights)


def test_of_what_tensorrt_has_not_the_report_says_why(tiny_checkpoint: Callable[[str], Path]):
    notes = Model(tiny_checkpoint("llama"), weights="int4", group_size=32).plan.notes()
    assert any("90 inputs in groups of 32, of which the last is shorter" in note for note in notes)
    assert any("makes logits" in note for note in notes)
