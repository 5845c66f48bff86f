"""Fixtures: the command line as a process, on a tiny engine that it built itself."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from char_tokenizer import write_char_tokenizer
from once import once

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def command() -> Callable[..., list[str]]:
    """command("run", engine) -> the process arguments: the console script's own entry point, in this interpreter."""
    code = "import sys; from enginesmith.cli.start import main; main(sys.argv[1:])"
    return lambda *arguments: [sys.executable, "-c", code, *map(str, arguments)]


@pytest.fixture(scope="session")
def cli_environment(shared_folder: Path, quick_compiler: None) -> dict[str, str]:
    """The environment of every command: a cache of its own, shared by the tests of this folder."""
    return os.environ | {"ENGINESMITH_CACHE": str(shared_folder / "cli-cache")}


@pytest.fixture(scope="session")
def cli(cli_environment: dict[str, str], command: Callable[..., list[str]]) -> Cli:
    """cli("run", engine, "-p", "x", input="", env={...}) -> the finished process; never a terminal."""

    def run(*arguments: object, input: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            input=input,
            capture_output=True,
            text=True,
            env=cli_environment | (env or {}),
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def checkpoint(tiny_checkpoint: Callable[[str], Path], shared_folder: Path) -> Path:
    """A tiny random llama of 512 positions, with a tokenizer of single characters, ids 3 to 97, and a chat template."""

    def make(folder: Path) -> None:
        shutil.copytree(tiny_checkpoint("llama"), folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
        write_char_tokenizer(folder)

    return once(shared_folder / "cli" / "tiny-llama", make)


@pytest.fixture(scope="session")
def build_flags(checkpoint: Path) -> list[object]:
    """All of the build command but its output: the same source every time, so that one compilation serves all tests."""
    return ["build", checkpoint, "--dtype", "fp32", "--max-seq-len", 400, "--max-batch-size", 4]


@pytest.fixture(scope="session")
def built(cli: Cli, build_flags: list[object], shared_folder: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """An engine that `enginesmith build` made, and what the command said."""

    def make(folder: Path) -> None:
        done = cli(*build_flags, "-o", folder / "engines" / "tiny.engine")
        (folder / "said.json").write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]))

    folder = once(shared_folder / "cli" / "built", make)
    return folder / "engines" / "tiny.engine", subprocess.CompletedProcess(
        *json.loads((folder / "said.json").read_text())
    )


@pytest.fixture(scope="session")
def engine(built: tuple[Path, subprocess.CompletedProcess[str]]) -> Path:
    """The engine. Read only: tests that damage one copy it first."""
    output, done = built
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def damaged(engine: Path, tmp_path: Path) -> Path:
    """A copy of the engine to damage."""
    return Path(shutil.copytree(engine, tmp_path / "damaged.engine"))
