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


LEVEL = "-Og"
"""Of kernels in tests, as of engines: it changes no bit (`test_linear.py`, `test_build.py`), and compiles in a third of
the time of -O3."""
_PRELUDE = """\
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "attention/cpu/paged_attention.h"
#include "embedding/cpu/embedding.h"
#include "experts/cpu/experts.h"
#include "gated_mlp/cpu/gated_mlp.h"
#include "linear/cpu/linear.h"
#include "norm/cpu/norm.h"
#include "rotary/cpu/rotary.h"
#include "sampling/cpu/sampling.h"
"""


def compile_command(isa: Isa, level: str = LEVEL) -> list[str]:
    """The compiler with the options that engines are compiled with; skips the test where there is none."""
    return [*_compiler().command, *_options(isa, level), *(f"-I{folder}" for folder in include_folders())]


def _compiler() -> toolchain.Compiler:
    try:
        return toolchain.find_compiler()
    except ToolchainError as error:
        pytest.skip(str(error))


def _options(isa: Isa, level: str) -> tuple[str, ...]:
    return (*FLAGS, level, *isa.compiler_flags)


def compile_shared(source: str, isa: Isa, emulated: Isa | None = None, level: str = LEVEL) -> Path:
    """The shared object of a driver, from the cache where the same text and options were compiled before.

    Kernels of `emulated` are compiled for `isa`. All drivers of an instruction set read one precompiled header.
    """
    define = f"#define ES_EMULATE_{emulated.value.upper()}\n" if emulated else ""
    arguments = [*compile_command(isa, level), "-shared"]
    headers = sorted(toolchain.headers_of(source).values())
    key = hashlib.sha256("\0".join([define, source, *arguments, *headers]).encode()).hexdigest()[:32]
    name = "kernel.so"

    def compile_into(folder: Path) -> None:
        prelude = precompiled(define + _PRELUDE, _compiler(), _options(isa, level)) if level == LEVEL else None
        included = ["-include", str(prelude)] if prelude else []
        text = source if prelude else define + source
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
    """`compile_kernel(source, isa=Isa.AVX2, emulated=None, level=LEVEL)` -> the loaded library.

    Skips where this machine lacks the instructions.
    """

    def build(source: str, isa: Isa = Isa.AVX2, emulated: Isa | None = None, level: str = LEVEL) -> ctypes.CDLL:
        missing = isa.cpu_flags - machine_flags()
        if missing:
            pytest.skip(f"this machine lacks {', '.join(sorted(missing))}")
        return ctypes.CDLL(str(compile_shared(source, isa, emulated, level)))

    return build


@pytest.fixture(scope="session")
def compile_sixteen_lanes(compile_kernel: Callable[..., ctypes.CDLL]) -> Callable[[str], ctypes.CDLL]:
    """`compile_sixteen_lanes(source)` -> the library with vectors of 16 lanes, emulated where there is no AVX-512."""
    if Isa.AVX512.cpu_flags <= machine_flags():
        return lambda source: compile_kernel(source, Isa.AVX512)
    return lambda source: compile_kernel(source, emulated=Isa.AVX512)


@pytest.fixture(scope="session", params=[8, 16], ids=["8lanes", "16lanes"])
def compile_each(
    compile_kernel: Callable[..., ctypes.CDLL],
    compile_sixteen_lanes: Callable[[str], ctypes.CDLL],
    request: pytest.FixtureRequest,
) -> Callable[[str], ctypes.CDLL]:
    """`compile_each(source)` -> the library with vectors of 8 lanes, then of 16."""
    return compile_kernel if request.param == 8 else compile_sixteen_lanes
