"""Compiles small C++ drivers around a kernel and loads them, so that tests call kernels through ctypes."""

import ctypes
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from quick_compiler import precompiled

from enginesmith.builder.targets.cpu import toolchain
from enginesmith.errors import ToolchainError
from enginesmith.kept import find, keep
from enginesmith.plugins.cpu.isa import Isa, machine_flags
from enginesmith.plugins.discovery import include_folders

FLAGS = ("-std=c++17", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wextra", "-fPIC", "-pthread")


def compile_command(isa: Isa, level: str = "-O3") -> list[str]:
    """The compiler with the options that engines are compiled with; skips the test where there is none."""
    return [*_compiler().command, *_options(isa, level), *(f"-I{folder}" for folder in include_folders())]


def _compiler() -> toolchain.Compiler:
    try:
        return toolchain.find_compiler()
    except ToolchainError as error:
        pytest.skip(str(error))


def _options(isa: Isa, level: str) -> tuple[str, ...]:
    return (*FLAGS, level, *isa.compiler_flags)


def compile_shared(source: str, isa: Isa, header: str = "", level: str = "-O3") -> Path:
    """The shared object of `header` and `source`, from the cache where the same text and options were compiled before.

    The header is precompiled: it is what many drivers have in common.
    """
    arguments = [*compile_command(isa, level), "-shared"]
    headers = sorted(toolchain.headers_of(header + source).values())
    key = hashlib.sha256("\0".join([header, source, *arguments, *headers]).encode()).hexdigest()[:32]
    name = "kernel.so"

    def compile_into(folder: Path) -> None:
        prelude = precompiled(header, _compiler(), _options(isa, level)) if header else None
        included = ["-include", str(prelude)] if prelude else []
        text = source if prelude else header + source
        command = [*arguments, *included, "-x", "c++", "-", "-o", str(folder / name)]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        assert done.returncode == 0, f"the compiler refused the driver:\n{done.stderr}\n{text}"

    return (find("test-kernels", key) or keep("test-kernels", key, compile_into)) / name


@pytest.fixture(scope="session")
def compiler_command() -> Callable[[Isa], list[str]]:
    """`compiler_command(isa)` -> the compiler and its options, to which a source or -fsyntax-only is added."""
    return compile_command


@pytest.fixture(scope="session")
def compile_kernel() -> Callable[..., ctypes.CDLL]:
    """`compile_kernel(source, isa=Isa.AVX2, header="", level="-O3")` -> the loaded library.

    Skips where this machine lacks the instructions.
    """

    def build(source: str, isa: Isa = Isa.AVX2, header: str = "", level: str = "-O3") -> ctypes.CDLL:
        missing = isa.cpu_flags - machine_flags()
        if missing:
            pytest.skip(f"this machine lacks {', '.join(sorted(missing))}")
        return ctypes.CDLL(str(compile_shared(source, isa, header, level)))

    return build


@pytest.fixture(scope="session", params=[8, 16], ids=["8lanes", "16lanes"])
def compile_each(
    compile_kernel: Callable[..., ctypes.CDLL], request: pytest.FixtureRequest
) -> Callable[..., ctypes.CDLL]:
    """`compile_each(source)` -> the library with vectors of 8 lanes, then of 16: emulated where there is no AVX-512."""

    def build(source: str) -> ctypes.CDLL:
        return compile_kernel(source) if request.param == 8 else compile_wide(compile_kernel, source)

    return build


def compile_wide(compile_kernel: Callable[..., ctypes.CDLL], source: str, header: str = "") -> ctypes.CDLL:
    if Isa.AVX512.cpu_flags <= machine_flags():
        return compile_kernel(source, Isa.AVX512, header)
    define = "#define ES_EMULATE_AVX512\n"
    return compile_kernel(source, header=define + header) if header else compile_kernel(define + source)


@pytest.fixture(scope="session")
def compile_sixteen_lanes(compile_kernel: Callable[..., ctypes.CDLL]) -> Callable[..., ctypes.CDLL]:
    """As `compile_each`, 16 lanes only: `compile_sixteen_lanes(source, header="")`."""
    return lambda source, header="": compile_wide(compile_kernel, source, header)
