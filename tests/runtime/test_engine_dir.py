"""Opening engine folders: what is not one, does not fit, or is damaged gives one clear error."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginesmith import integrity
from enginesmith.cache import cache_dir
from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine, write_engine
from enginesmith.runtime.executors import cpu_backend
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.manifest import FORMAT_VERSION, Manifest, is_plain_relative


@pytest.fixture
def folder(tmp_path: Path, toy_manifest: Manifest) -> Path:
    """A sealed folder whose libraries are never loaded."""
    folder = tmp_path / "some.engine"
    (folder / "cpu").mkdir(parents=True)
    (folder / "cpu" / "engine.so").write_bytes(b"library")
    (folder / "cpu" / "sampler.so").write_bytes(b"sampler")
    (folder / "weights.bin").write_bytes(bytes(range(100)))
    (folder / "report.json").write_text("{}")
    write_engine(folder, toy_manifest)
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads((folder / "engine.json").read_text())
    change(data)
    (folder / "engine.json").write_text(json.dumps(data))


def flip(path: Path, offset: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_what_was_written_is_read(folder: Path, toy_manifest: Manifest):
    engine = open_engine(folder)
    assert set(engine.manifest.files) == {"cpu/engine.so", "cpu/sampler.so", "weights.bin", "report.json"}
    assert replace(engine.manifest, files={}) == toy_manifest
    assert engine.weights == folder / "weights.bin"
    assert next(iter(json.loads((folder / "engine.json").read_text()))) == "format_version"
    assert write_engine(folder, toy_manifest) == engine.manifest  # sealing again changes nothing


def test_what_is_no_engine(tmp_path: Path):
    with pytest.raises(EngineError, match="not an engine: there is no such folder"):
        open_engine(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(EngineError, match="not an engine: it is a file"):
        open_engine(tmp_path / "file")
    with pytest.raises(EngineError, match=r"has no engine.json; make one with 'enginesmith build'"):
        open_engine(tmp_path)
    (tmp_path / "engine.json").write_text("{")
    with pytest.raises(EngineError, match="not valid JSON"):
        open_engine(tmp_path)
    (tmp_path / "engine.json").write_text("[]")
    with pytest.raises(EngineError, match="expected a JSON object, found list"):
        open_engine(tmp_path)


@pytest.mark.parametrize("path", [None, 5, b"e", ["e"], "a" * 5000, "a\0b", "/dev/null/engine", "/proc/self/mem"])
def test_paths_that_cannot_be(path: Any):
    with pytest.raises(EngineError, match="engine"):
        LLM(path)


def test_another_format_names_the_command_that_rebuilds(folder: Path):
    for version in (1, FORMAT_VERSION + 1):
        edit(folder, lambda data, version=version: data.update(format_version=version))
        with pytest.raises(
            EngineError, match=rf"format {version}, .* reads {FORMAT_VERSION}; .*enginesmith build .* -o"
        ):
            open_engine(folder)
    edit(folder, lambda data: data.pop("format_version"))
    with pytest.raises(EngineError, match="format None"):
        open_engine(folder)


def test_another_c_interface(folder: Path):
    edit(folder, lambda data: data["target"].update(abi_version=99))
    with pytest.raises(EngineError, match=r"speaks ABI 99, this enginesmith \d+; .*enginesmith build"):
        open_engine(folder)


def test_another_instruction_set(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_backend, "machine_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(EngineError, match="built for avx2, but this CPU lacks f16c, fma; rebuild here"):
        open_engine(folder)
    monkeypatch.setattr(cpu_backend, "machine_flags", frozenset)
    with pytest.raises(EngineError, match="/proc/cpuinfo lists no instruction sets"):
        open_engine(folder)


def test_another_target(folder: Path):
    edit(folder, lambda data: data["target"].update(name="tensorrt"))
    with pytest.raises(EngineError, match="target 'tensorrt'"):
        open_engine(folder)


@pytest.mark.parametrize("name", ["cpu/engine.so", "weights.bin", "report.json"])
@pytest.mark.parametrize("opened_before", [False, True])
def test_a_flipped_byte(folder: Path, name: str, opened_before: bool):
    if opened_before:
        open_engine(folder)
    flip(folder / name, -1)
    with pytest.raises(EngineError, match=f"{name} is damaged: its SHA-256 is .* rebuild"):
        open_engine(folder)
    with pytest.raises(EngineError, match="damaged"):
        LLM(folder)
    open_engine(folder, verify=False)


def test_a_flipped_byte_under_the_old_time(folder: Path):
    open_engine(folder)
    weights = folder / "weights.bin"
    stat = weights.stat()
    flip(weights)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(EngineError, match="damaged"):
        open_engine(folder)


def test_weights_are_hashed_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(integrity, "cache_dir", cache_dir)
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    hashed: list[str] = []
    plain = integrity.sha256
    monkeypatch.setattr(integrity, "sha256", lambda path: (hashed.append(path.name), plain(path))[1])
    for _ in range(3):
        open_engine(folder)
    assert hashed.count("weights.bin") == 1
    assert hashed.count("engine.so") == 3


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(integrity, "cache_dir", cache_dir)
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "file" / "cache"))
    open_engine(folder)


@pytest.mark.parametrize(("section", "field"), [("kv_cache", "block_size"), ("limits", "max_seq_len")])
def test_a_manifest_that_was_edited(folder: Path, section: str, field: str):
    """Such a value would still parse, and the engine would read blocks where none are."""
    edit(folder, lambda data: data[section].update({field: data[section][field] + 1}))
    with pytest.raises(EngineError, match=r"engine.json was changed since the engine was built"):
        open_engine(folder)


def test_missing_and_cut_files(folder: Path):
    (folder / "weights.bin").write_bytes(b"short")
    with pytest.raises(EngineError, match=r"weights.bin is damaged: it has 5 bytes, engine.json says 100"):
        open_engine(folder, verify=False)
    (folder / "weights.bin").unlink()
    with pytest.raises(EngineError, match=r"weights.bin is missing"):
        open_engine(folder)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "", ".", "a/", "a\\b", "..", "cpu/./engine.so"]
)
def test_names_that_leave_the_folder(folder: Path, name: str):
    assert not is_plain_relative(name)
    edit(folder, lambda data: data["files"].update({name: {"sha256": "0" * 64, "bytes": 1}}))
    with pytest.raises(EngineError, match="is not a plain path inside the engine folder"):
        open_engine(folder)


def test_a_link_that_leaves_the_folder(folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes((folder / "weights.bin").read_bytes())
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(outside)
    with pytest.raises(EngineError, match="leads outside the engine folder"):
        open_engine(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(surprise=1), "engine.json: unknown field 'surprise'"),
        (lambda data: data["model"].pop("vocab_size"), "engine.json.model: field 'vocab_size' is missing"),
        (lambda data: data["model"].update(vocab_size="9"), r"engine.json.model.vocab_size: expected int, got '9'"),
        (lambda data: data["model"].update(eos_token_ids=[1, "x"]), r"eos_token_ids\[1\]: expected int, got 'x'"),
        (lambda data: data["limits"].update(max_seq_len=0), r"limits.max_seq_len must be in \[1, 16777216\], got 0"),
        (lambda data: data["limits"].update(max_seq_len=True), "expected int, got True"),
        (lambda data: data["kv_cache"].update(dtype="fp16"), "kv_cache.dtype: expected KvDtype, got 'fp16'"),
        (lambda data: data["kv_cache"]["groups"][1].update(window=0), "sliding_window group cannot have window 0"),
        (lambda data: data["target"].update(library="cpu/other.so"), "'cpu/other.so', which is not among"),
        (lambda data: data["target"].update(weights_bytes=99), "weights_bytes differs"),
        (lambda data: data["files"]["weights.bin"].update(sha256="abc"), "malformed"),
        (lambda data: data.update(limits=None), "engine.json.limits: expected an object, got None"),
    ],
)
def test_a_manifest_with_a_wrong_field(folder: Path, change: Callable[[dict[str, Any]], None], message: str):
    edit(folder, change)
    with pytest.raises(EngineError, match=message):
        open_engine(folder)


@pytest.mark.parametrize("value", [2**16, 2**31, 2**32, 2**63, 10**29, -1])
@pytest.mark.parametrize("field", ["max_batch_size", "max_num_tokens", "max_seq_len"])
def test_limits_past_any_engine_under_a_right_digest(
    make_toy_engine: Callable[..., Path], tmp_path: Path, toy_manifest: Manifest, field: str, value: int
):
    engine = make_toy_engine(tmp_path / "e.engine")

    def change(data: dict[str, Any]) -> None:
        data["limits"][field] = value
        del data["manifest_sha256"]
        data["manifest_sha256"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    edit(engine, change)
    if value == 2**16 and field != "max_batch_size":
        LLM(engine, threads=1).close()
        return
    with pytest.raises(EngineError, match=f"limits.{field}"):
        LLM(engine, threads=1)


def test_block_tables_past_any_memory(folder: Path):
    edit(folder, lambda data: data["limits"].update(max_batch_size=4096, max_seq_len=2**24))
    with pytest.raises(
        EngineError, match=r"the block tables of 4096 sequences .* take 137.4 GB, the limit is 268.4 MB"
    ):
        open_engine(folder)


def test_a_library_that_is_none(folder: Path):
    with pytest.raises(EngineError, match=r"engine.so cannot be loaded: .*; rebuild the engine"):
        LLM(folder)
