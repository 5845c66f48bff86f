"""The compiler is found, told what to do, and not asked twice; what it refuses is reported in its own words."""

import ctypes
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enginesmith.atomic import temporary_folder
from enginesmith.builder.targets.cpu import toolchain
from enginesmith.errors import ToolchainError
from enginesmith.extras import install_command
from enginesmith.plugins.cpu.isa import Isa

SOURCE = '#include "engine/runtime.h"\nextern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n'


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("ENGINESMITH_CXXFLAGS", raising=False)


def test_compiles_to_a_library_that_loads():
    library = ctypes.CDLL(str(toolchain.compile_source(SOURCE, Isa.AVX2)))
    assert library.answer() == 42


def test_the_second_time_comes_from_the_cache():
    first = toolchain.compile_source(SOURCE, Isa.AVX2)
    stamp = first.stat().st_mtime_ns
    again = toolchain.start_compiling(SOURCE, Isa.AVX2)
    assert again.cached
    assert again.wait() == first
    assert first.stat().st_mtime_ns == stamp


def test_source_and_instruction_set_are_in_the_key():
    compiler = toolchain.find_compiler()
    keys = [
        toolchain.object_key(source, compiler, isa)
        for source, isa in ((SOURCE, Isa.AVX2), (SOURCE + "\n", Isa.AVX2), (SOURCE, Isa.AVX512))
    ]
    assert len(set(keys)) == 3


def test_options_of_the_environment_come_last_and_are_in_the_key(monkeypatch: pytest.MonkeyPatch):
    source = 'extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER; }\n'
    for answer in (42, 43):
        monkeypatch.setenv("ENGINESMITH_CXXFLAGS", f"-DANSWER={answer} '-DTEXT=a b'")
        assert ctypes.CDLL(str(toolchain.compile_source(source, Isa.AVX2))).answer() == answer


def test_options_without_an_end_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENGINESMITH_CXXFLAGS", "'-DTEXT=a")
    with pytest.raises(ToolchainError, match=r"ENGINESMITH_CXXFLAGS=.*No closing quotation"):
        toolchain.compile_source(SOURCE, Isa.AVX2)


def test_headers_are_in_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    header = tmp_path / "inner.h"
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    monkeypatch.setattr(toolchain, "ENGINE_HEADERS", tmp_path)
    compiler = toolchain.find_compiler()
    header.write_text("int a;\n")
    before = toolchain.object_key('#include "outer.h"\n', compiler, Isa.AVX2)
    header.write_text("int b;\n")
    assert toolchain.object_key('#include "outer.h"\n', compiler, Isa.AVX2) != before


def test_a_refusal_quotes_the_compiler_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ToolchainError, match="frobnicate"):
        toolchain.compile_source("int x = frobnicate;\n", Isa.AVX2)
    assert not list((tmp_path / "cache" / "objects").iterdir())
    assert not list(tmp_path.glob("enginesmith-compile-*"))


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"apt install g\+\+.*" + re.escape(install_command("toolchain"))):
        toolchain.find_compiler()


def test_a_cxx_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++ -v")
    with pytest.raises(ToolchainError, match="/nonexistent/g"):
        toolchain.find_compiler()


def test_cxx_is_respected_with_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake = tmp_path / "my c++"
    fake.write_text("#!/bin/sh\necho fake 1.0\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", f"'{fake}' --wrap")
    assert toolchain.find_compiler().command == (str(fake), "--wrap")


def test_a_compiler_that_says_it_succeeded_but_made_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(ToolchainError, match="could not compile"):
        toolchain.compile_source(SOURCE, Isa.AVX2)


def test_cancelling_stops_the_compiler():
    running = toolchain.start_compiling(SOURCE, Isa.AVX2)
    assert running.process is not None
    pid = running.process.pid
    running.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_cancelling_ends_what_the_compiler_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started = tmp_path / "started"
    fake = tmp_path / "c++"
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fake && exit 0\nsleep 60 & echo $! > {started}\nwait\n')
    fake.chmod(0o755)
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    compilation = toolchain.start_compiling("int x;", Isa.AVX2, toolchain.Compiler((str(fake),), "fake"))
    while not started.exists() or not started.read_text().endswith("\n"):
        time.sleep(0.01)
    compilation.cancel()
    child = Path(f"/proc/{started.read_text().strip()}")
    deadline = time.monotonic() + 5
    while child.exists() and "State:\tZ" not in (child / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not child.exists() or "State:\tZ" in (child / "status").read_text()


def test_a_compiler_and_what_it_started_die_with_their_parent(tmp_path: Path):
    fake, started = tmp_path / "c++", tmp_path / "started"
    fake.write_text(f"#!/bin/sh\nsleep 60 & echo $! $$ > {started}\nwait\n")
    fake.chmod(0o755)
    script = (
        "import time\n"
        "from enginesmith.builder.targets.cpu import toolchain\n"
        "from enginesmith.plugins.cpu.isa import Isa\n"
        f"running = toolchain.start_compiling('int x;', Isa.AVX2, toolchain.Compiler(({str(fake)!r},), 'fake'))\n"
        "time.sleep(60)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    while not started.exists() or not started.read_text().endswith("\n"):
        assert parent.poll() is None
        time.sleep(0.01)
    assert list(tmp_path.glob(".enginesmith.*.partial"))
    parent.kill()
    parent.wait()
    processes = [Path("/proc", id, "status") for id in started.read_text().split()]
    deadline = time.monotonic() + 10
    while any(status.exists() and "State:\tZ" not in status.read_text() for status in processes):
        assert time.monotonic() < deadline, "they live on"
        time.sleep(0.01)
    with temporary_folder(tmp_path):  # as the next run does
        assert len(list(tmp_path.glob(".enginesmith.*.partial"))) == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 1000])
def test_a_damaged_object_is_compiled_again(damage: bytes):
    path = toolchain.compile_source(SOURCE, Isa.AVX2)
    path.write_bytes(damage)
    again = toolchain.start_compiling(SOURCE, Isa.AVX2)
    assert not again.cached
    assert ctypes.CDLL(str(again.wait())).answer() == 42
