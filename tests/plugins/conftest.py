"""Compiles small C++ drivers around a kernel and loads them, so that tests call kernels through ctypes."""

import ctypes
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from enginesmith.builder.targets.cpu import toolchain
from enginesmith.errors import ToolchainError
from enginesmith.kept import find, keep
from enginesmith.plugins.cpu.isa import Isa, machine_flags
from enginesmith.plugins.registry import include_folders

FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wextra", "-fPIC", "-pthread")


def compile_command(isa: Isa) -> list[str]:
    """The compiler with the options that engines are compiled with; skips the test where there is none."""
    try:
        compiler = toolchain.find_compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
    return [*compiler.command, *FLAGS, *isa.compiler_flags, *(f"-I{folder}" for folder in include_folders())]


def compile_shared(source: str, isa: Isa) -> Path:
    """The shared object of `source`, from the cache where the same source, headers and options were compiled before."""
    arguments = [*compile_command(isa), "-shared"]
    headers = sorted(toolchain.headers_of(source).values())
    key = hashlib.sha256("\0".join([source, *arguments, *headers]).encode()).hexdigest()[:32]
    name = "kernel.so"

    def compile_into(folder: Path) -> None:
        command = [*arguments, "-x", "c++", "-", "-o", str(folder / name)]
        done = subprocess.run(command, input=source, text=True, capture_output=True)
        assert done.returncode == 0, f"the compiler refused the driver:\n{done.stderr}\n{source}"

    return (find("test-kernels", key) or keep("test-kernels", key, compile_into)) / name


@pytest.fixture(scope="session")
def compiler_command() -> Callable[[Isa], list[str]]:
    """`compiler_command(isa)` -> the compiler and its options, to which a source or -fsyntax-only is added."""
    return compile_command


@pytest.fixture(scope="session")
def compile_kernel() -> Callable[..., ctypes.CDLL]:
    """`compile_kernel(source, isa=Isa.AVX2)` -> the loaded library; skips where this machine lacks the instructions."""

    def build(source: str, isa: Isa = Isa.AVX2) -> ctypes.CDLL:
        missing = isa.cpu_flags - machine_flags()
        if missing:
            pytest.skip(f"this machine lacks {', '.join(sorted(missing))}")
        return ctypes.CDLL(str(compile_shared(source, isa)))

    return build


@pytest.fixture(scope="session", params=[8, 16], ids=["8lanes", "16lanes"])
def compile_each(
    compile_kernel: Callable[..., ctypes.CDLL], request: pytest.FixtureRequest
) -> Callable[..., ctypes.CDLL]:
    """`compile_each(source)` -> the library with vectors of 8 lanes, then of 16: emulated where there is no AVX-512."""

    def build(source: str) -> ctypes.CDLL:
        return compile_kernel(source) if request.param == 8 else compile_wide(compile_kernel, source)

    return build


def compile_wide(compile_kernel: Callable[..., ctypes.CDLL], source: str) -> ctypes.CDLL:
    if Isa.AVX512.cpu_flags <= machine_flags():
        return compile_kernel(source, Isa.AVX512)
    return compile_kernel("#define ES_EMULATE_AVX512\n" + source)


@pytest.fixture(scope="session")
def compile_sixteen_lanes(compile_kernel: Callable[..., ctypes.CDLL]) -> Callable[[str], ctypes.CDLL]:
    """As `compile_each`, 16 lanes only."""
    return lambda source: compile_wide(compile_kernel, source)
