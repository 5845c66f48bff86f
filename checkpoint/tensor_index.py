"""Which file holds each tensor of a checkpoint folder, and lazy, mapped reading of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, listed, shown
from .config import read_json
from .files import exists, listing
from .safetensors import TensorInfo, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_LONGEST_NAME = 255  # what file systems allow
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def index_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of a checkpoint folder: of model.safetensors, or of the shards its index names.

    Raises CheckpointError for a folder without safetensors (pickles are never read), an index that names a file
    outside the folder, missing shards and missing tensors (all of them at once), and damaged files.
    """
    if exists(folder / SINGLE):
        return read_header(folder / SINGLE)
    if exists(folder / INDEX):
        return _sharded(folder, _weight_map(folder / INDEX))
    pickles = [path.name for path in listing(folder) if path.suffix in _PICKLES]
    if pickles:
        raise CheckpointError(
            f"{folder}: only pickled weights ({listed(pickles)}), which can run code when opened and are never "
            "read. Use the safetensors version of this checkpoint, or convert it on a machine that trusts it."
        )
    raise CheckpointError(f"{folder}: no weights: neither {SINGLE} nor {INDEX} is there.")


def _weight_map(path: Path) -> dict[str, str]:
    weight_map: Any = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: no weight_map in it (tensor name to file name).")
    bad = sorted({shown(name) for name in weight_map.values() if not _is_plain(name)})
    if bad:
        raise CheckpointError(
            f"{path}: weight_map may only name .safetensors files in its own folder; found {listed(bad)}."
        )
    return weight_map


def _is_plain(name: object) -> bool:
    """A file name that cannot leave its folder on any system."""
    return (
        isinstance(name, str)
        and name.endswith(".safetensors")
        and len(name.encode(errors="replace")) <= _LONGEST_NAME
        and not any(character in name for character in "/\\:\0")
    )


def _sharded(folder: Path, weight_map: Mapping[str, str]) -> dict[str, TensorInfo]:
    names = sorted(set(weight_map.values()))
    if missing := [name for name in names if not exists(folder / name)]:
        raise CheckpointError(
            f"{folder}: {len(missing)} of {len(names)} weight files are missing: {listed(missing)}. "
            "Download them again."
        )
    shards = {name: read_header(folder / name) for name in names}
    if lost := [f"{tensor} ({name})" for tensor, name in weight_map.items() if tensor not in shards[name]]:
        raise CheckpointError(f"{folder}: {INDEX} names tensors that their files lack: {listed(lost)}.")
    # Tensors that the index does not list stay visible, so that binding can refuse them.
    unlisted = {tensor: info for shard in shards.values() for tensor, info in shard.items()}
    return unlisted | {tensor: shards[name][tensor] for tensor, name in weight_map.items()}


class TensorReader:
    """Reads tensors as views of mapped files: nothing is copied, pages come in when they are touched."""

    def __init__(self) -> None:
        self._maps: dict[Path, np.ndarray] = {}

    def read(self, info: TensorInfo) -> np.ndarray:
        """A read-only view of the tensor, of its own dtype and shape."""
        if info.file not in self._maps:
            try:
                self._maps[info.file] = np.asarray(np.memmap(info.file, dtype=np.uint8, mode="r"))
            except (OSError, ValueError) as error:
                raise CheckpointError(f"{info.file}: cannot be mapped: {error}.") from error
        data = self._maps[info.file][info.offset : info.offset + info.nbytes]
        if data.nbytes != info.nbytes:
            raise CheckpointError(f"{info.file}: changed while it was open; tensor {info.name!r} is no longer whole.")
        return data.view(info.dtype).reshape(info.shape)
