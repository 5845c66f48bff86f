"""Checkpoints as quantizers write them, packed one number at a time as their formats say.

Each `store_*` takes integers and gives the tensors of one module; `quantized_checkpoint` makes a whole model of them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Grid:
    """q [N, K] and zero [N, G] count from 0 to 2^bits - 1; scale [N, G]; the group of input k is group[k]."""

    q: np.ndarray
    zero: np.ndarray
    scale: np.ndarray
    group: np.ndarray

    def values(self) -> np.ndarray:
        """scale * (q - zero), one element at a time."""
        out = np.empty(self.q.shape, np.float32)
        for n, k in np.ndindex(*out.shape):
            g = self.group[k]
            out[n, k] = np.float32(self.scale[n, g]) * np.float32(int(self.q[n, k]) - int(self.zero[n, g]))
        return out


def random_grid(
    rng: np.random.Generator, n: int, k: int, bits: int, group_size: int, *, symmetric: bool, dtype: Any = np.float16
) -> Grid:
    """Group size 0 is the whole of K. All zeros occur where there are as many groups."""
    size, top = group_size or k, 1 << bits
    groups = -(-k // size)
    zero = np.full((n, groups), top // 2)
    if not symmetric:
        zero = (np.arange(n * groups).reshape(n, groups) + rng.integers(top)) % top
    scale = rng.uniform(0.005, 0.03, (n, groups)).astype(dtype)
    return Grid(rng.integers(0, top, (n, k)), zero, scale, np.arange(k) // size)


def _words(rows: int, columns: int) -> np.ndarray:
    return np.zeros((rows, columns), np.uint32)


def pack_columns(numbers: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """[R, C] to int32 [R, C bits / 32]; place i of a word holds column order[i] of its columns."""
    each = 32 // bits
    words = _words(len(numbers), -(-numbers.shape[1] // each))
    for row, word in np.ndindex(*words.shape):
        for place in range(each):
            column = word * each + (order[place] if order else place)
            if column < numbers.shape[1]:
                words[row, word] |= np.uint32(int(numbers[row, column]) << (bits * place))
    return words.view(np.int32)


def store_awq(grid: Grid) -> Tensors:
    return {
        "qweight": pack_columns(grid.q.T, 4, AWQ_ORDER),
        "qzeros": pack_columns(grid.zero.T, 4, AWQ_ORDER),
        "scales": np.ascontiguousarray(grid.scale.T),
    }


def store_awq_gemv(grid: Grid, group_size: int) -> Tensors:
    """Zeros and scales of groups are filled up to whole words, and those to what kernels take at once."""
    groups = grid.scale.shape[1]
    words = -(-groups // 8)
    at_once = {128: 1, 64: 2, 32: 4, 16: 8}[group_size]
    while words % at_once:
        words += 1
    zero, scale = (np.zeros((len(grid.q), 8 * words), part.dtype) for part in (grid.zero, grid.scale))
    zero[:, :groups], scale[:, :groups] = grid.zero, grid.scale
    return {"qweight": pack_columns(grid.q, 4), "qzeros": pack_columns(zero, 4), "scales": scale}


def store_gptq(grid: Grid, bits: int, added: int, *, g_idx: bool = True) -> Tensors:
    """`added` is 1 for the first convention: a zero of z is stored as z - 1, and so must be at least 1."""
    tensors = {
        "qweight": np.ascontiguousarray(pack_columns(grid.q, bits).T),
        "qzeros": pack_columns(grid.zero.T - added, bits),
        "scales": np.ascontiguousarray(grid.scale.T),
    }
    return {**tensors, "g_idx": grid.group.astype(np.int32)} if g_idx else tensors


def store_packed(grid: Grid, bits: int, *, symmetric: bool) -> Tensors:
    tensors = {
        "weight_packed": pack_columns(grid.q, bits),
        "weight_scale": grid.scale,
        "weight_shape": np.array(grid.q.shape, np.int64),
    }
    if not symmetric:
        tensors["weight_zero_point"] = np.ascontiguousarray(pack_columns(grid.zero.T, bits).T)
    return tensors


def store_int8(grid: Grid) -> Tensors:
    """Symmetric: zeros are 128."""
    return {"weight": (grid.q - 128).astype(np.int8), "weight_scale": grid.scale}


def fp8_values(weight: np.ndarray, scale: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """float8 [N, K] and a scale for each block, one element at a time."""
    out = np.empty(weight.shape, np.float32)
    for n, k in np.ndindex(*weight.shape):
        out[n, k] = np.float32(weight[n, k]) * np.float32(scale[n // block[0], k // block[1]])
    return out


@dataclass(frozen=True)
class Stored:
    """A module's tensors, and the float32 weight that they stand for."""

    tensors: Tensors
    values: np.ndarray


Quantizer = Callable[[np.random.Generator, str, int, int], Stored | None]


def quantized_checkpoint(source: Path, folder: Path, config: Mapping[str, Any], quantizer: Quantizer) -> Path:
    """A copy of a tiny checkpoint in which the weights of the decoder's linear layers are those of `quantizer`.

    Beside it lies folder/dequantized, the same model with plain float32 weights.
    """
    from safetensors.numpy import load_file, save_file

    plain = load_file(source / "model.safetensors")
    rng, tensors = np.random.default_rng(0), dict(plain)
    for name, weight in sorted(plain.items()):
        if not name.endswith("_proj.weight"):
            continue
        stored = quantizer(rng, name, *weight.shape)
        if stored is None:
            continue
        del tensors[name]
        module = name.removesuffix(".weight")
        tensors |= {f"{module}.{suffix}": np.ascontiguousarray(part) for suffix, part in stored.tensors.items()}
        plain[name] = stored.values
    described = json.loads((source / "config.json").read_text())
    for path, content, extra in (
        (folder, tensors, {"quantization_config": config}),
        (folder / "dequantized", plain, {}),
    ):
        path.mkdir(parents=True)
        save_file(content, path / "model.safetensors", {"format": "pt"})
        (path / "config.json").write_text(json.dumps({**described, **extra}))
    return folder
