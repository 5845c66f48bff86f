"""The names that `enginesmith` itself offers."""

import subprocess
import sys

import pytest

import enginesmith
from enginesmith.extras import install_command


@pytest.mark.parametrize("name", enginesmith.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(enginesmith, name) is not None


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        enginesmith.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_a_plain_install_runs_engines_and_says_what_building_needs() -> None:
    code = """
import sys
for name in ("torch", "transformers", "onnx", "onnx_ir", "ml_dtypes", "safetensors", "gguf"):
    sys.modules[name] = None
from enginesmith import LLM, SamplingParams
try:
    from enginesmith import build
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "enginesmith.build needs" in done.stdout
    assert done.stdout.strip().endswith(install_command("build"))
