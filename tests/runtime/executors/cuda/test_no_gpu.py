"""A machine without a driver, or without its Python binding: in a process of its own, where none is emulated."""

import subprocess
import sys
from pathlib import Path

import pytest

from enginesmith.extras import install_command


def says(engine: Path, prelude: str = "") -> str:
    """What opening the engine is refused with."""
    code = f"""{prelude}
from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine
open_engine({str(engine)!r}, any_machine=True)
try:
    open_engine({str(engine)!r})
except EngineError as error:
    print(error)
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_without_a_driver(small_engine: Path):
    assert "no NVIDIA driver (libcuda.so.1) was found; install" in says(small_engine)


def test_without_cuda_bindings(small_engine: Path):
    text = says(small_engine, "import sys; sys.modules['cuda.bindings'] = None")
    assert text == (
        "engines for NVIDIA GPUs need cuda-bindings, which is not installed: " + install_command("cuda") + "\n"
    )
