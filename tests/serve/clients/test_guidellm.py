"""guidellm, a public generator of loads, unchanged: every request is served, and it measures what was asked for."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from http_api import Server

pytestmark = pytest.mark.skipif(
    find_spec("guidellm") is None, reason="guidellm is not installed: the extra `clients` brings it"
)


def test_a_load(server: Server, checkpoint: Path, tmp_path: Path) -> None:
    options = {
        "backend": f"kind=openai_http,target={server.url}",
        "tokenizer": f"kind=huggingface_auto,model={checkpoint}",
        "data": "kind=synthetic_text,prompt_tokens=20,output_tokens=16",
        "profile": "kind=concurrent,streams=4",
        "constraint": "kind=max_requests,count=12",
        "output": f"kind=json,path={tmp_path / 'report.json'}",
    }
    command = [sys.executable, "-m", "guidellm", "run", "--disable-console"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    subprocess.run(command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, timeout=300, check=True, capture_output=True)
    (benchmark,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    metrics = benchmark["metrics"]
    assert metrics["request_totals"]["successful"] == 12
    assert metrics["request_totals"]["errored"] == 0
    assert metrics["output_token_count"]["successful"]["median"] == 16
    assert metrics["time_to_first_token_ms"]["successful"]["median"] > 0
