"""The tensors of a GGUF file under the names, and in the layout, of a Transformers model: dequantized without loss."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import CheckpointError
from ..progress import Progress
from .gguf_file import GgufFile, GgufTensor
from .safetensors_writer import new_safetensors

_F32, _F16, _BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
_PLAIN = (0, 1, 30)  # GGML's numbers of F32, F16 and BF16
_BY_ROWS = ("token_embd.weight", "output.weight")  # the largest tensors, which no architecture rearranges
_ROWS_ELEMENTS = 1 << 23
_KEPT_OUT = ("rope_freqs.weight",)  # expressed in the config instead


@dataclass(frozen=True)
class _Piece:
    """Rows of a parameter from `first_row` on; `done` bytes of the file went into them."""

    name: str
    first_row: int
    values: np.ndarray
    done: float


class GgufTensors:
    """Transformers' importer supplies what differs between architectures: names, and the layout of each tensor.

    Values are those of the file, exactly: plain ones are stored as bf16 where it holds them all, else as fp16, else as
    float32; those of quantized blocks, a product of an fp16 scale and integers, need float32.
    """

    def __init__(self, source: GgufFile, model: Any) -> None:
        """Raises CheckpointError for tensors that the model's class has no place for."""
        from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

        self._source = source
        self._processor = TENSOR_PROCESSORS.get(source.architecture, TensorProcessor)(config=model.config.to_dict())
        self._names = _names(source, model, self._processor)
        self._gathered: dict[str, Any] = {}  # processors put here what they assemble from several tensors
        self._layout = self._find_layout(model)

    @property
    def dtype(self) -> str:
        """The element type that holds every tensor, as config.json names it."""
        dtypes = {dtype for dtype, _ in self._layout.values()}
        return "bfloat16" if dtypes == {_BF16} else "float16" if dtypes == {_F16} else "float32"

    def write(self, path: Path, progress: Progress) -> None:
        """Write them all into one safetensors file, one at a time: memory is bounded by the largest.

        Raises CheckpointError where tensors are missing or the disk is too small, ValueError for a wrong shape.
        """
        needed = sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in self._layout.values())
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise CheckpointError(
                f"{self._source.path}: needs {needed / 1e6:.0f} MB in {path.parent.parent}, where {free / 1e6:.0f} MB "
                "are free. Free some, or let ENGINESMITH_CACHE name a folder elsewhere."
            )
        total = sum(tensor.data.nbytes for tensor in self._source.tensors)
        with (
            new_safetensors(path, self._layout) as writer,
            progress.task(f"Importing {self._source.path.name}", total) as task,
        ):
            for tensor in self._source.tensors:
                for piece in self._pieces(tensor):
                    writer.write(piece.name, piece.values, piece.first_row)
                    task.advance(piece.done)
            for name, value in self._gathered.items():
                writer.write(name, value.numpy())
            if writer.incomplete:
                raise CheckpointError(f"{self._source.path}: tensors are missing: {', '.join(writer.incomplete)}.")

    def _pieces(self, tensor: GgufTensor) -> Iterator[_Piece]:
        """A tensor's values in their final place; nothing for one that a processor gathers with others."""
        if tensor.name in _BY_ROWS and tensor.name in self._names:
            rows, columns = tensor.shape
            step = max(1, _ROWS_ELEMENTS // columns)
            for first in range(0, rows, step):
                values = tensor.dequantize(slice(first, first + step))
                yield _Piece(self._names[tensor.name], first, values, tensor.data.nbytes * len(values) / rows)
            return
        result = self._processor.process(
            weights=tensor.dequantize(),
            name=tensor.name,
            tensor_key_mapping=self._names,
            parsed_parameters={"tensors": self._gathered},
        )
        if result.name in self._names:
            yield _Piece(self._names[result.name], 0, np.asarray(result.weights), tensor.data.nbytes)

    def _find_layout(self, model: Any) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The model's parameters and saved buffers, each shared one once, in the smallest type that holds them."""
        parameters = model.state_dict(keep_vars=True)
        distinct = {id(value): name for name, value in reversed(parameters.items())}
        dtypes = {
            self._names[tensor.name]: self._exact_dtype(tensor)
            for tensor in self._source.tensors
            if tensor.name in self._names
        }
        return {
            name: (dtypes.get(name, _F32), tuple(value.shape))
            for name, value in parameters.items()
            if distinct[id(value)] == name
        }

    def _exact_dtype(self, tensor: GgufTensor) -> np.dtype:
        if tensor.type_id not in _PLAIN:
            return _F32
        smaller = [_BF16, _F16]
        for piece in self._pieces(tensor):
            smaller = [dtype for dtype in smaller if _holds(dtype, piece.values)]
        return smaller[0] if smaller else _F32


def _holds(dtype: np.dtype, values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(dtype).astype(np.float32), values, equal_nan=True)


@dataclass(frozen=True)
class _Names:
    """As much of a model as Transformers looks at to find GGUF's names of its tensors.

    Given the model itself, it builds its table of names anew for every module, which takes seconds.
    """

    config: Any
    tensors: dict[str, Any]
    children: tuple[tuple[str, "_Names"], ...] = ()

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def named_children(self) -> tuple[tuple[str, "_Names"], ...]:
        return self.children


def _names(source: GgufFile, model: Any, processor: Any) -> dict[str, str]:
    """GGUF tensor name to Transformers parameter name. Raises CheckpointError for tensors without a place."""
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    base = _Names(model.config, model.base_model.state_dict())
    whole = _Names(model.config, model.state_dict(), ((model.base_model_prefix, base),))
    names: dict[str, str] = get_gguf_hf_weights_map(whole, processor)
    unknown = [
        tensor.name
        for tensor in source.tensors
        if tensor.name not in names and tensor.name not in _KEPT_OUT and "_exps" not in tensor.name
    ]
    if unknown:
        raise CheckpointError(
            f"{source.path}: the model's class has no place for these tensors: {', '.join(unknown)}. "
            "Use the model's safetensors checkpoint."
        )
    return names
