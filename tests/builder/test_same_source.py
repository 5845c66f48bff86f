"""A build writes the same source in every process, so that the compiler's results are found again."""

import os
import subprocess
import sys
from pathlib import Path

from tiny_models import FAMILIES

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.targets.cpu.plan import plan
from enginesmith.builder.trace.trace_model import trace_model
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.progress import NoProgress


def write_sources() -> str:
    """The sources of two families, one after another."""
    sources = []
    for family in ("gemma3_text", "phi3-longrope"):
        network = trace_model(FAMILIES[family], 64, NoProgress())
        optimize(network)
        sources.append(plan(network, BuildConfig(weights="int8"), Isa.AVX2, 64).source)
    return "".join(sources)


def test_hashes_of_text_do_not_change_the_source() -> None:
    """This process writes what a fresh one does, in which text hashes differently."""
    here = os.environ.get("PYTHONHASHSEED", "random")
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "1" if here == "0" else "0",
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
    }
    process = subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True)
    written = write_sources()
    there = process.communicate()[0]
    assert process.returncode == 0
    assert "Gemma3ForCausalLM" in written
    assert "Phi3ForCausalLM" in written
    assert there == written


if __name__ == "__main__":
    sys.stdout.write(write_sources())
