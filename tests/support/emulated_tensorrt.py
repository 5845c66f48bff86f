"""A TensorRT that is none: a plan is the segment's ONNX model, which onnxruntime runs on the emulated GPU's memory.

Runs are launches of the emulated driver, so that they keep their place in the stream, and graphs capture them.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from emulated_gpu import EmulatedGpu

from enginesmith.builder.targets.cuda.segments import plans, tensorrt
from enginesmith.runtime.executors.cuda import segments
from enginesmith.runtime.executors.cuda.driver import call

VERSION = "0.0"
_BF16, _FLOAT = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
_NUMPY: dict[int, np.dtype] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.INT32: np.dtype(np.int32),
    onnx.TensorProto.BOOL: np.dtype(np.bool_),
    onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
_SHARED = 4096


class SegmentModel:
    """A segment's model in onnxruntime, which has few operations in bf16: they run in float32, and are rounded."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.types = {
            value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)
        }
        self.rows = {
            value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])
            for value in (*model.graph.input, *model.graph.output)
        }
        self.inputs = [value.name for value in model.graph.input]
        self.outputs = [value.name for value in model.graph.output]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(_in_float32(model).SerializeToString(), options)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, in the types of the model; inputs may be wider."""
        given = {name: self._rounded(name, data) for name, data in inputs.items()}
        found = self._session.run(self.outputs, given)
        return {name: data.astype(_NUMPY[self.types[name]]) for name, data in zip(self.outputs, found, strict=True)}  # type: ignore[union-attr]

    def _rounded(self, name: str, data: np.ndarray) -> np.ndarray:
        data = data.astype(_NUMPY[self.types[name]])
        return data.astype(np.float32) if data.dtype == ml_dtypes.bfloat16 else data

    def memory(self, name: str, address: int, rows: int) -> np.ndarray:
        """A tensor in memory."""
        dtype, shape = _NUMPY[self.types[name]], (rows, *self.rows[name])
        nbytes = dtype.itemsize * int(np.prod(shape))
        return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), dtype).reshape(shape)


def _in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float32 in the place of bf16, rounded to it wherever bf16 was made."""
    typed = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    graph = typed.graph
    narrow = {v.name for v in (*graph.value_info, *graph.output) if v.type.tensor_type.elem_type == _BF16}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "Cast" and node.attribute[0].i == _BF16:
            node.attribute[0].i = _FLOAT
        made = [name for name in node.output if name in narrow]
        for number, name in enumerate(node.output):
            node.output[number] = f"{name}_wide" if name in made else name
        nodes.append(node)
        for name in made:
            nodes.append(onnx.helper.make_node("Cast", [f"{name}_wide"], [f"{name}_narrow"], to=_BF16))
            nodes.append(onnx.helper.make_node("Cast", [f"{name}_narrow"], [name], to=_FLOAT))
    for tensor in graph.initializer:
        if tensor.data_type == _BF16:
            wide = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _BF16:
            value.type.tensor_type.elem_type = _FLOAT
    made_of = onnx.helper.make_graph(nodes, graph.name, graph.input, graph.output, graph.initializer)
    return onnx.helper.make_model(made_of, opset_imports=model.opset_import, ir_version=model.ir_version)


class _Builder:
    """In place of `EngineBuilder`."""

    peak_bytes = 0

    def __init__(self, engine: tensorrt.TensorRt, sm: int) -> None:
        pass

    def __enter__(self) -> "_Builder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def build(self, model: ir.Model, rows: tuple[int, int, int], plan: Path) -> None:
        assert 1 <= rows[0] <= rows[1] <= rows[2]
        plan.write_bytes(ir.to_proto(model).SerializeToString())


class EmulatedTensorRt:
    """What the runtime imports. `capturable`: whether graphs can hold segments; `memories`: those of contexts."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu, self.capturable, self.runs = gpu, True, 0
        self.memories: set[int] = set()
        self.module = ModuleType("tensorrt_rtx")
        names: dict[str, Any] = {
            "ILogger": type("ILogger", (), {"ERROR": 1, "INTERNAL_ERROR": 0}),
            "ExecutionContextAllocationStrategy": SimpleNamespace(USER_MANAGED=2),
            "Runtime": lambda log: SimpleNamespace(deserialize_cuda_engine=self._engine),
        }
        vars(self.module).update(names)

    def _engine(self, plan: bytes) -> Any:
        try:
            model = SegmentModel(onnx.ModelProto.FromString(plan))
        except Exception:
            return None
        return SimpleNamespace(
            device_memory_size_v2=_SHARED, create_execution_context=lambda strategy: _Context(self, model)
        )


class _Context:
    """An execution context of the module above."""

    def __init__(self, trt: EmulatedTensorRt, model: SegmentModel) -> None:
        self._trt, self._model = trt, model
        self._names = [*model.inputs, *model.outputs]
        self._addresses: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._memory = 0
        self._image = f"segment {id(self)}".encode()
        trt.gpu.others[self._image] = len(self._names) + 1, self._run
        self._function = call("cuModuleGetFunction", call("cuModuleLoadData", self._image + b"\0"), b"segment")
        self.is_stream_capturable = lambda stream: trt.capturable

    def __del__(self) -> None:
        self._trt.gpu.others.pop(self._image, None)

    def set_device_memory(self, memory: int, size: int) -> None:
        assert memory % 256 == 0
        assert size >= _SHARED
        self._memory = memory
        self._trt.memories.add(memory)

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address % 256 == 0
        self._addresses[name] = address
        return name in self._names

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        assert shape[1:] == self._model.rows[name]
        self._shapes[name] = shape

    def execute_async_v3(self, stream: int) -> bool:
        (rows,) = {shape[0] for shape in self._shapes.values()}
        values = (ctypes.c_uint64 * (len(self._names) + 1))(*(self._addresses[name] for name in self._names), rows)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(values) + 8 * n for n in range(len(values))))
        call("cuLaunchKernel", self._function, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(pointers), 0)
        return True

    def _run(self, values: list[int]) -> None:
        *addresses, rows = values
        memory = {n: self._model.memory(n, at, rows) for n, at in zip(self._names, addresses, strict=True)}
        ctypes.memset(self._memory, 0xFF, _SHARED)
        for name, data in self._model.run({name: memory[name] for name in self._model.inputs}).items():
            memory[name][...] = data
        self._trt.runs += 1


def stand_in_builder(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone, `--dense tensorrt` builds for a TensorRT of VERSION."""
    patch.setattr(tensorrt, "find_tensorrt", lambda sm, device_sm: tensorrt.TensorRt("tensorrt_rtx", VERSION))
    patch.setattr(plans, "EngineBuilder", _Builder)


@contextmanager
def stand_in_tensorrt(gpu: EmulatedGpu) -> Iterator[EmulatedTensorRt]:
    """Until this ends, `--dense tensorrt` builds for, and finds, a TensorRT of VERSION on the emulated GPU."""
    emulated = EmulatedTensorRt(gpu)
    with pytest.MonkeyPatch.context() as patch:
        stand_in_builder(patch)
        patch.setattr(segments, "version", lambda package: VERSION)
        patch.setitem(sys.modules, "tensorrt_rtx", emulated.module)
        yield emulated
