"""A model in one GGUF file, or in several: NAME-00001-of-00003.gguf and so on, as llama.cpp's gguf-split writes them.

The first part has the metadata of the model; every part has its own place (`split.no`, from 0 on), how many there are
(`split.count`), how many tensors all of them have (`split.tensors.count`), and some of the tensors.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, shown
from .gguf_file import GgufFile, read_gguf

_NAME = re.compile(r"(?P<name>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})")
_MAX_PARTS = 9999  # a bound of what is tried, well past any model


def read_gguf_model(path: Path) -> tuple[GgufFile, list[Path]]:
    """A whole model from its first file, and the paths of all files, that one first.

    Raises CheckpointError where `path` is not the first part, a part is missing, damaged, or of another model.
    """
    first = read_gguf(path)
    count = _stated(first, "split.count", 1)
    if count <= 1:
        return first, [path]
    paths = _paths(path, count)
    parts = [first, *(read_gguf(part) for part in paths[1:])]
    for number, part in enumerate(parts):
        for key, expected in (("split.no", number), ("split.count", count)):
            if _stated(part, key, None) != expected:
                raise CheckpointError(
                    f"{part.path}: {key} is {shown(part.metadata.get(key))}, should be {expected} in part "
                    f"{number + 1} of {count}. Download all parts again, of one model."
                )
    return _joined(parts), paths


def base_name(path: Path) -> str:
    """The name of the model: that of the file, without what numbers a part."""
    match = _NAME.fullmatch(path.stem)
    return match["name"] if match else path.stem


def _paths(path: Path, count: int) -> list[Path]:
    match = _NAME.fullmatch(path.stem)
    if count > _MAX_PARTS or match is None or int(match["count"]) != count:
        raise CheckpointError(
            f"{path}: one of {count} parts of a model (split.count), and not named as one, NAME-00001-of-{count:05}"
            ".gguf, so that the others cannot be found. Give the parts their names back."
        )
    paths = [path.with_name(f"{match['name']}-{part:05}-of-{count:05}{path.suffix}") for part in range(1, count + 1)]
    if path != paths[0]:
        raise CheckpointError(f"{path}: part {int(match['part'])} of {count} of a model. Give the first, {paths[0]}.")
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise CheckpointError(
            f"{path}: the first of {count} parts of a model, of which {len(missing)} are not beside it: {named}. "
            "Download all parts into one folder."
        )
    return paths


def _joined(parts: list[GgufFile]) -> GgufFile:
    first = parts[0]
    tensors = [tensor for part in parts for tensor in part.tensors]
    twice = len(tensors) - len({tensor.name for tensor in tensors})
    if twice:
        raise CheckpointError(f"{first.path}: {twice} tensors are in more than one of the parts. Download them again.")
    expected = _stated(first, "split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise CheckpointError(
            f"{first.path}: split.tensors.count is {expected}, its {len(parts)} parts have {len(tensors)} tensors. "
            "Download all parts again, of one model."
        )
    return replace(first, tensors=tensors)


def _stated(part: GgufFile, key: str, default: Any) -> Any:
    value = part.metadata.get(key, default)
    if value is not default and type(value) is not int:
        raise CheckpointError(f"{part.path}: {key} should be a number, found {shown(value)}.")
    return value
