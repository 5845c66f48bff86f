"""The command line as a process, on a tiny engine that it built itself."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

Cli = Callable[..., subprocess.CompletedProcess[str]]

_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a: {% endif %}"
)


def command(*arguments: object) -> list[str]:
    """The console script's own entry point, in this interpreter."""
    code = "import sys; from enginesmith.cli.main import main; main(sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.fixture(scope="session")
def cli_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of every command: a cache of its own, shared by the tests of this folder."""
    return os.environ | {"ENGINESMITH_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="session")
def cli(cli_environment: dict[str, str]) -> Cli:
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
def checkpoint(tiny_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random llama with a tokenizer of single characters, ids 3 to 97, and a chat template."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny-llama"
    shutil.copytree(tiny_checkpoint("llama"), folder)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {chr(32 + i): 3 + i for i in range(95)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def engine(cli: Cli, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that `enginesmith build` made. Read only: tests that damage one copy it first."""
    output = tmp_path_factory.mktemp("engines") / "tiny.engine"
    done = cli("build", checkpoint, "-o", output, "--dtype", "fp32", "--max-seq-len", 96, "--max-batch-size", 4)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def damaged(engine: Path, tmp_path: Path) -> Path:
    """A copy of the engine to damage."""
    return Path(shutil.copytree(engine, tmp_path / "damaged.engine"))
