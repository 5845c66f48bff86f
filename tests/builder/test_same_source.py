"""A build writes the same source in every process, so that the compiler's results are found again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SUPPORT = Path(__file__).parents[1] / "support"
_WRITE_SOURCE = f"""
import sys
sys.path.insert(0, {str(_SUPPORT)!r})
from tiny_models import FAMILIES
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.targets.cpu.plan import plan
from enginesmith.builder.trace.trace_model import trace_model
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.progress import NoProgress

for family in sys.argv[1:]:
    network = trace_model(FAMILIES[family], 64, NoProgress())
    optimize(network)
    print(plan(network, BuildConfig(weights="int8"), Isa.AVX2, 64).source)
"""


@pytest.fixture(scope="module")
def sources() -> list[str]:
    """The sources of two families, one after another, from processes in which text hashes differently."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITE_SOURCE, "gemma3_text", "phi3-longrope"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1")
    ]
    written = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return written


def test_hashes_of_text_do_not_change_the_source(sources: list[str]) -> None:
    first, second = sources
    assert "Gemma3ForCausalLM" in first
    assert "Phi3ForCausalLM" in first
    assert first == second
