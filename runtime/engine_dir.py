"""The engine folder: the one place that knows how it is laid out, written by the builder and opened by the runtime.

engine.json     the manifest          weights.bin   packed weights, memory-mapped
cpu/engine.so   and its engine.cpp    tokenizer/    tokenizer.json, chat template, special tokens
network.onnx, report.json             for people
"""

import hashlib
import json
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from .. import integrity
from ..errors import EngineError, shown
from ..json_files import read_object
from .executors.registry import backend_of, facts_of
from .manifest import FORMAT_VERSION, FileEntry, Manifest

MANIFEST = "engine.json"
BUILD_REPORT = "report.json"
TOKENIZER = "tokenizer"
_SELF_DIGEST = "manifest_sha256"
_MAX_MANIFEST = 16 << 20
_MOST_OF_A_PATH = 300


@dataclass(frozen=True)
class EngineDir:
    """An engine folder whose manifest was read and found to fit this machine."""

    path: Path
    manifest: Manifest
    manifest_sha256: str | None = None  # as engine.json records it, of all its other fields

    @property
    def weights(self) -> Path:
        return self.path / self.manifest.target.weights

    @property
    def tokenizer(self) -> Path:
        return self.path / TOKENIZER


def write_engine(folder: Path, manifest: Manifest) -> Manifest:
    """Seal `folder`: record size and digest of every file in it, and write engine.json. Returns the manifest written.

    The caller makes the folder appear at once, with `atomic.new_folder`.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    files = {}
    for path in paths:
        digest = integrity.sha256(path)
        integrity.remember(path, digest)
        files[path.relative_to(folder).as_posix()] = FileEntry(sha256=digest, bytes=path.stat().st_size)
    sealed = replace(manifest, files=files)
    data = sealed.to_json()
    Manifest.from_json(json.loads(json.dumps(data)), facts_of)  # what cannot be read back is not written
    data[_SELF_DIGEST] = _manifest_digest(sealed)
    (folder / MANIFEST).write_text(json.dumps(data, indent=2) + "\n")
    return sealed


def open_engine(path: str | Path, *, verify: bool = True, any_machine: bool = False) -> EngineDir:
    """Open an engine folder, once it is known to be one, to fit this enginesmith and this machine, and to be whole.

    `verify` compares every file with its digest; weights found right before and unchanged since are not read again
    (see `integrity`). Without it only sizes are compared. `any_machine` opens, to look inside, engines that this
    machine cannot run. Raises EngineError.
    """
    engine = _read_manifest(_folder(path))
    if not any_machine:
        backend_of(engine.manifest.target.name).check_machine(engine.path, engine.manifest)
    _check_sizes(engine)
    if verify:
        _check_digests(engine)
    return engine


def read_report(folder: Path) -> dict[str, Any]:
    """What the build noted in BUILD_REPORT. Raises EngineError where that is missing or no JSON."""
    return read_object(folder / BUILD_REPORT, EngineError, "rebuild the engine")


def _manifest_digest(manifest: Manifest) -> str:
    return hashlib.sha256(json.dumps(manifest.to_json(), sort_keys=True).encode()).hexdigest()


def _folder(path: str | Path) -> Path:
    if not isinstance(path, str | PathLike):
        raise EngineError(f"engine must be the path of a folder, got {shown(path)}")
    try:
        found = Path(path)
        if found.is_dir():
            return found
        reason = "it is a file" if found.exists() else "there is no such folder"
    except (OSError, TypeError) as error:  # TypeError: a path of bytes
        reason = error.strerror if isinstance(error, OSError) else str(error)
    raise EngineError(f"{str(path)[:_MOST_OF_A_PATH]} is not an engine: {reason}; make one with 'enginesmith build'")


def _read_manifest(path: Path) -> EngineDir:
    if not (path / MANIFEST).exists():
        raise EngineError(f"{path} is not an engine: it has no {MANIFEST}; make one with 'enginesmith build'")
    data = read_object(path / MANIFEST, EngineError, "copy it again or rebuild the engine", max_bytes=_MAX_MANIFEST)
    if data.get("format_version") != FORMAT_VERSION:
        raise EngineError(
            f"{path} is an engine of format {shown(data.get('format_version'))}, this enginesmith reads "
            f"{FORMAT_VERSION}; rebuild it from its checkpoint: enginesmith build CHECKPOINT -o {path} (or use "
            f"enginesmith {str(data.get('builder_version', 'unknown'))[:80]}, which built it)"
        )
    try:
        recorded = data.pop(_SELF_DIGEST, None)
        return EngineDir(path, Manifest.from_json(data, facts_of), recorded)
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from None


def _check_sizes(engine: EngineDir) -> None:
    root = engine.path.resolve()
    for name, entry in engine.manifest.files.items():
        file = engine.path / name
        if not file.resolve().is_relative_to(root):
            raise EngineError(f"{file} leads outside the engine folder; copy the whole folder again")
        try:
            size = file.stat().st_size
        except OSError:
            raise EngineError(f"{file} is missing; copy the whole folder again, or rebuild the engine") from None
        if size != entry.bytes:
            raise EngineError(
                f"{file} is damaged: it has {size} bytes, {MANIFEST} says {entry.bytes}; "
                "copy it again or rebuild the engine"
            )
    target = engine.manifest.target
    if engine.manifest.files[target.weights].bytes != target.weights_bytes:
        raise EngineError(f"{engine.path}: target.weights_bytes differs from {target.weights}; rebuild the engine")


def _check_digests(engine: EngineDir) -> None:
    """Small files, the library among them, are hashed at every start; weights once, until they are touched."""
    if engine.manifest_sha256 != _manifest_digest(engine.manifest):
        raise EngineError(
            f"{engine.path / MANIFEST} was changed since the engine was built: its fields do not match its "
            f"{_SELF_DIGEST}; copy it again or rebuild the engine"
        )
    for name, entry in engine.manifest.files.items():
        file = engine.path / name
        is_weights = name == engine.manifest.target.weights
        if is_weights and integrity.is_known(file, entry.sha256):
            continue
        try:
            found = integrity.sha256(file)
        except OSError as error:
            raise EngineError(f"{file} cannot be read: {error}") from None
        if found != entry.sha256:
            raise EngineError(
                f"{file} is damaged: its SHA-256 is {found[:16]}..., {MANIFEST} says {entry.sha256[:16]}...; "
                "copy it again or rebuild the engine"
            )
        if is_weights:
            integrity.remember(file, entry.sha256)
