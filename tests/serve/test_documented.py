"""The commands and programs that README and docs/serving.md show, run as they stand but for the port."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from http_api import Server

ROOT = Path(__file__).parents[2]
ADDRESS = "localhost:8000"
README, SERVING = ((ROOT / path).read_text() for path in ("README.md", "docs/serving.md"))
CURLS = re.findall(r"^(?: {4})?(curl [^']*(?:'[^']*'[^'\n]*)+)$", README + SERVING, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```", SERVING, re.DOTALL)


def test_they_are_found() -> None:
    assert len(CURLS) == 2
    assert len(PROGRAMS) == 1
    assert all(ADDRESS in text for text in CURLS + PROGRAMS)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("curl", CURLS)
def test_curl(server: Server, curl: str) -> None:
    command = curl.replace(ADDRESS, f"127.0.0.1:{server.port}")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    shown = re.search(r"^ {4}(\{\"object\":\"chat.completion\".*?)\n\n", README, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert set(re.findall(r'"(\w+)":', shown[1])) <= set(re.findall(r'"(\w+)":', done.stdout))
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_python(server: Server, program: str) -> None:
    program = program.replace(ADDRESS, f"127.0.0.1:{server.port}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout
    assert done.stderr == ""
