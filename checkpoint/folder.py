"""A checkpoint folder in the making: tensors arrive in any order over several runs, and the folder appears whole."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from .. import integrity
from ..atomic import discard, new_file, new_folder
from ..blame import could_not_write
from ..errors import BuildError, CheckpointError
from ..json_files import read_object
from .checkpoint import Checkpoint
from .output import check_output
from .safetensors import TensorInfo, read_header
from .safetensors_writer import new_safetensors
from .tensor_index import INDEX, SINGLE, TensorReader
from .tokenizer_files import copy_tokenizer

REPORT = "quantization_report.json"  # only checkpoints that were quantized here have one
_FINGERPRINT = "fingerprint"
_LOCK = "lock"
_SUFFIX = ".safetensors"
_NOTE = ".json"
_FILE_BYTES = 5_000_000_000  # of one file of weights, roughly: what Transformers cuts checkpoints into


class CheckpointFolder:
    """The checkpoint `output`, made of shards: some tensors under a key, written at once, kept until `finish`.

    Shards lie in a hidden folder beside `output`. After a failure, or a kill, the next one with the same `fingerprint`
    (of everything that decides what is written) finds them again; one with another starts anew. `output` itself is
    not touched before `finish` has written all of it beside. Use it in a `with` block: a lock keeps others out.

    Raises BuildError for an `output` that is something else than an empty folder or a checkpoint quantized here, for
    a place that cannot be written, a full disk, and while another process writes the same `output`.
    """

    def __init__(self, output: Path, source: Checkpoint, fingerprint: str, *, file_bytes: int = _FILE_BYTES) -> None:
        self._named, self._source, self._file_bytes = output, source, file_bytes
        _check_source(output, source)
        self._output = check_output(output, REPORT, "a checkpoint that enginesmith quantized")
        self._work = self._output.parent / f".{self._output.name}.quantize"
        self._reader = TensorReader()
        with self._named_on_failure():
            self._work.mkdir(parents=True, exist_ok=True)
            _check_work(self._work)
            self._lock = self._locked()
            try:
                self._resume(fingerprint)
            except BaseException:
                os.close(self._lock)
                raise

    def __enter__(self) -> "CheckpointFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._work.exists() and not self.shards:  # nothing to go on from
            discard(self._work)
        os.close(self._lock)

    @property
    def path(self) -> Path:
        """Where shards lie until the folder is finished."""
        return self._work

    @property
    def shards(self) -> set[str]:
        """Keys of the shards that are written."""
        return {path.name.removesuffix(_NOTE) for path in self._work.glob(f"*{_NOTE}")}

    def write(self, key: str, tensors: Mapping[str, np.ndarray], note: object = None) -> None:
        """Write tensors, by their full names, as the shard `key`; one that is there is replaced.

        `note`: JSON values to remember with the shard, which `finish` leaves out.
        """
        contents = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        path = self._path(key)
        with self._named_on_failure():
            with new_safetensors(path, contents) as file:
                for name, tensor in tensors.items():
                    file.write(name, tensor)
            with new_file(path.with_suffix(_NOTE)) as work:
                _write_json(work, {"sha256": _digest(path, note), "note": note})

    def infos(self, key: str) -> dict[str, TensorInfo]:
        """Where the tensors of a shard lie."""
        return read_header(self._path(key))

    def note(self, key: str) -> Any:
        """What was noted with a shard."""
        return _read_note(self._path(key))["note"]

    def finish(self, quantization_config: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> None:
        """Make `output` of the shards, and take the work away.

        config.json is the source's with `quantization_config`; tokenizer, generation config and chat template are the
        source's; `extra` are further files, name to text. Weights lie in one file, or in several of about 5 GB and an
        index. Raises ValueError for a tensor that two shards have.
        """
        config = {**self._source.config, "quantization_config": dict(quantization_config)}
        with self._named_on_failure(), new_folder(self._output) as folder:
            self._write_weights(folder)
            copy_tokenizer(self._source.path, folder)
            _write_json(folder / "config.json", config)
            for name, text in (extra or {}).items():
                (folder / name).write_text(text, encoding="utf-8")
        discard(self._work)

    def _write_weights(self, folder: Path) -> None:
        files = [sorted(infos, key=lambda info: -info.dtype.itemsize) for infos in self._files()]  # so all are aligned
        names = (
            [SINGLE]
            if len(files) == 1
            else [f"model-{i + 1:05}-of-{len(files):05}{_SUFFIX}" for i in range(len(files))]
        )
        for name, infos in zip(names, files, strict=True):
            with new_safetensors(folder / name, {info.name: (info.dtype, info.shape) for info in infos}) as file:
                for info in infos:
                    file.write(info.name, self._reader.read(info))
        if len(files) > 1:
            total = sum(info.nbytes for infos in files for info in infos)
            places = {info.name: name for name, infos in zip(names, files, strict=True) for info in infos}
            _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": places})

    def _files(self) -> Iterator[list[TensorInfo]]:
        """The tensors of each file to be; the order is that of the shards' keys."""
        seen: set[str] = set()
        infos: list[TensorInfo] = []
        for key in sorted(self.shards, key=_natural):
            for name, info in read_header(self._path(key)).items():
                if name in seen:
                    raise ValueError(f"two shards have the tensor {name}")
                seen.add(name)
                if infos and sum(each.nbytes for each in infos) + info.nbytes > self._file_bytes:
                    yield infos
                    infos = []
                infos.append(info)
        yield infos

    def _path(self, key: str) -> Path:
        if not re.fullmatch(r"[\w][\w.-]*", key):
            raise ValueError(f"a shard's key should be a plain file name, found {key!r}")
        return self._work / f"{key}{_SUFFIX}"

    def _locked(self) -> int:
        descriptor = os.open(self._work / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise BuildError(
                f"{self._named}: another process is writing it; wait for that one, or name another output"
            ) from None
        return descriptor

    def _resume(self, fingerprint: str) -> None:
        """Keep whole shards of the same fingerprint; remove all others, and what a killed process left unfinished."""
        record = self._work / _FINGERPRINT
        same = record.exists() and record.read_bytes() == fingerprint.encode()
        kept = {path.stem for path in self._work.glob(f"*{_NOTE}") if same and _is_whole(path.with_suffix(_SUFFIX))}
        for path in self._work.iterdir():
            if path.name not in (_LOCK, _FINGERPRINT) and path.stem not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not same:
            record.write_text(fingerprint, encoding="utf-8")

    @contextmanager
    def _named_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BuildError(
                f"{could_not_write(self._named, error)}. What was finished is kept for the next run."
            ) from error


def _check_source(output: Path, source: Checkpoint) -> None:
    """Refuse to replace what is read."""
    place, read = os.path.realpath(output), source.path.resolve()
    if read == Path(place):
        raise BuildError(f"{output} is the checkpoint to quantize; name another output")
    if read.is_relative_to(place):
        raise BuildError(f"{output} holds the checkpoint to quantize, {source.path}; name another output")


def _check_work(work: Path) -> None:
    """Refuse to clear a folder of the same name that is not of this making."""
    if work.is_symlink() or not ({path.name for path in work.iterdir()} <= {_LOCK} or (work / _FINGERPRINT).exists()):
        raise BuildError(f"{work} is in the way, where unfinished checkpoints lie; remove it, or name another output")


def _read_note(shard: Path) -> dict[str, Any]:
    return read_object(shard.with_suffix(_NOTE), CheckpointError)


def _digest(shard: Path, note: object) -> str:
    """Of a shard and what was noted with it."""
    return sha256(f"{integrity.sha256(shard)} {json.dumps(note, sort_keys=True)}".encode()).hexdigest()


def _is_whole(shard: Path) -> bool:
    try:
        record = _read_note(shard)
        return record["sha256"] == _digest(shard, record["note"])
    except (CheckpointError, KeyError, OSError):
        return False


def _natural(key: str) -> list[tuple[int, str]]:
    """Orders "layer.10" after "layer.9"."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", key)]


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
