"""Which TensorRT builds, and one that does, where it is installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from enginesmith.builder.targets.cuda.segments import tensorrt
from enginesmith.builder.targets.cuda.segments.tensorrt import EngineBuilder, TensorRt, find_tensorrt
from enginesmith.errors import ToolchainError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are found, to be filled."""
    names: set[str] = set()
    monkeypatch.setattr(tensorrt, "find_spec", lambda name: object() if name in names else None)
    monkeypatch.setattr(tensorrt, "version", lambda name: "1.2")
    return names


def test_tensorrt_builds_for_the_gpu_at_hand_and_rtx_for_others(installed: set[str]):
    installed |= {"tensorrt", "tensorrt_rtx"}
    assert str(find_tensorrt(89, device_sm=89)) == "tensorrt 1.2"
    assert str(find_tensorrt(89, device_sm=90)) == "tensorrt_rtx 1.2"
    assert str(find_tensorrt(89, device_sm=None)) == "tensorrt_rtx 1.2"


@pytest.mark.parametrize(
    ("packages", "sm", "message"),
    [
        (set(), 89, r"not installed: pip install .*\[tensorrt\]"),
        ({"tensorrt"}, 89, "of compute capability 89, but there is none here"),
        ({"tensorrt_rtx"}, 90, "builds for compute capabilities 80, 86, 89, 120, not 90"),
    ],
)
def test_where_none_can_build_the_error_says_what_to_do(packages: set[str], sm: int, message: str, installed: set[str]):
    installed |= packages
    with pytest.raises(ToolchainError, match=message) as caught:
        find_tensorrt(sm, device_sm=None)
    assert "--dense triton" in str(caught.value)


def _product(weight: np.ndarray, dtype: ir.DataType) -> ir.Model:
    """y = x W."""
    x = ir.Value(name="x", shape=ir.Shape(["rows", len(weight)]), type=ir.TensorType(dtype))
    tensor = ir.tensor(weight, name="w")
    w = ir.Value(name="w", shape=ir.Shape(weight.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    node = ir.node("MatMul", [x, w])
    y = node.outputs[0]
    y.name, y.shape, y.type = "y", ir.Shape(["rows", weight.shape[1]]), ir.TensorType(dtype)
    graph = ir.Graph([x], [y], nodes=[node], initializers=[w], opset_imports={"": 23}, name="product")
    return ir.Model(graph, ir_version=11)


@pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="pip install 'enginesmith[tensorrt]' builds plans here")
def test_plans_are_built_without_a_gpu_and_refusals_are_told(tmp_path: Path):
    weight = np.ones((64, 32), np.float32)
    with EngineBuilder(TensorRt("tensorrt_rtx", ""), 89) as builder:
        builder.build(_product(weight, ir.DataType.FLOAT), (1, 4, 16), tmp_path / "a.plan")
        with pytest.raises(ToolchainError, match=r"could not build product for sm_89: .*MatMul"):
            builder.build(_product(weight, ir.DataType.INT32), (1, 4, 16), tmp_path / "b.plan")
        builder.build(_product(weight, ir.DataType.FLOAT), (1, 1, 1), tmp_path / "c.plan")
    assert (tmp_path / "a.plan").stat().st_size > 1000
    assert builder.peak_bytes > 0
