"""What benchmarks/build_memory.py measures, on fewer layers: neither a build nor a run holds a model in memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "build_memory.py"


def test_weights_are_never_held():
    command = [sys.executable, str(SCRIPT), "--layers", "4", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    sizes, build, load = result["gigabytes"], result["build"], result["load"]
    assert sizes["checkpoint"] > 1
    assert 0.1 < build["process"] < 0.7  # 0.4, for 16 layers too
    assert load["served"]["RssFile"] > 0.5 * sizes["engine"]  # all but the table of embeddings, read row by row
    assert load["loaded"]["RssAnon"] < 0.1
    assert load["served"]["RssAnon"] < 0.15
