"""Kills a command at random moments, and looks at what is left: `python tests/end_to_end/kills.py --kills 200`.

A tiny model, and a compiler that stands in for one (it waits and copies), so that much of a run is spent writing. Each
run is forked from this process, which has imported everything, so that moments fall into the work itself. After each
kill the target must be what it was or the new one, whole; the same command must then succeed, and nothing of the dead
run may be left, no process, no file.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from char_tokenizer import write_char_tokenizer
from tiny_models import write_checkpoint

import enginesmith.builder.quantize.quantize
import enginesmith.recipes.runner
import enginesmith.runtime.engine_dir
from enginesmith.cli import start

SAMPLER = "es_sample_size"  # what the sampler's source and library have, and the engine's do not
COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo stand-in && exit 0
for output; do case $output in *.cpp) source=$output ;; esac; done
kept={folder}/engine.so
grep -q {sampler} "$source" && kept={folder}/sampler.so
sleep 0.1 & wait
echo half > "$output"
sleep 0.1 & wait
cp $kept "$output"
"""
RECIPE = """
name: tiny
source: {path: model}
quantize: {method: rtn, bits: 8, format: compressed-tensors}
build: {max_seq_len: 32, max_batch_size: 2, check: false}
demo: {prompt: "a b", chat: false, sampling: {max_tokens: 4, temperature: 0}}
"""


class Ground:
    """The folder in which a command runs: model, compiler and recipe; `work`, where it writes; `tmp`, and the cache."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.tmp, self.cache = root, root / "work", root / "tmp", root / "cache"
        for folder in (self.work, self.tmp):
            folder.mkdir()
        os.environ |= {"ENGINESMITH_CACHE": str(self.cache), "TMPDIR": str(self.tmp)}
        tempfile.tempdir = None
        write_char_tokenizer(write_checkpoint("llama", root / "model"))
        (root / "recipe.yaml").write_text(RECIPE)
        (root / "c++").write_text(COMPILER.format(folder=root, sampler=SAMPLER))
        (root / "c++").chmod(0o755)
        self.build = ("build", root / "model", "-o", self.work / "out", "--max-seq-len", 32, "--no-check")
        self.quantize = ("quantize", root / "model", "-o", self.work / "out", "--method", "rtn", "--bits", 8)
        self.recipe = ("recipe", "run", root / "recipe.yaml", "-o", self.work / "out")

    def learn(self, command: tuple[object, ...]) -> None:
        """Compile once in earnest what the stand-in gives from then on."""
        os.environ.pop("CXX", None)
        compiled = run(command)
        assert ended(compiled) == 0, f"{command} fails by itself"
        for built in (self.cache / "objects").glob("*/engine.so"):
            kind = "sampler.so" if SAMPLER.encode() in built.read_bytes() else "engine.so"
            shutil.copyfile(built, self.root / kind)
        os.environ["CXX"] = str(self.root / "c++")

    def clear(self) -> None:
        for folder in (self.work, self.cache / "objects"):
            shutil.rmtree(folder, ignore_errors=True)
        self.work.mkdir()

    def left(self) -> list[str]:
        """What no run should leave: files by name, and processes by their arguments."""
        known = {"out", ".out.recipe.json", "out.checkpoint"}
        files = [path.name for path in self.work.iterdir() if path.name not in known]
        files += [path.name for path in self.tmp.iterdir() if not path.name.startswith("torch")]
        files += [path.name for path in self.cache.rglob("*.partial")]
        return files + self._processes()

    def _processes(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.tmp).encode() in arguments and int(process.name) != os.getpid():
                found.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
        return found


def run(command: tuple[object, ...]) -> int:
    """Fork a process that runs `enginesmith COMMAND` without output; its id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        os.setsid()
        log = os.open(os.environ["TMPDIR"] + "/../log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        start.main([str(word) for word in command])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def engine_state(folder: Path) -> str | None:
    """A digest of an engine, None where there is none. Raises EngineError for one that is not whole."""
    if not folder.exists():
        return None
    enginesmith.runtime.engine_dir.open_engine(folder)
    return hashlib.sha256((folder / "engine.json").read_bytes()).hexdigest()


def checkpoint_state(folder: Path) -> str | None:
    """A digest of a checkpoint's weights."""
    if not folder.exists():
        return None
    json.loads((folder / "config.json").read_text())
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def kill_once(ground: Ground, command: tuple[object, ...], state: Callable[[Path], str | None], after: float) -> str:
    """Kill the command `after` seconds; how it ended. AssertionError for what should not be."""
    output = ground.work / "out"
    before = state(output)
    child = run(command)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    killed = ended(child) != 0
    found = state(output)
    assert found is not None or before is None, "the old one is gone"
    deadline = time.monotonic() + 5
    while ground._processes():
        assert time.monotonic() < deadline, ("processes are left", ground._processes())
        time.sleep(0.01)
    status = ended(run(command))
    assert status == 0, ("the next run fails", status, (ground.root / "log").read_text())
    assert state(output) is not None
    assert not ground.left(), ("something is left", ground.left())
    return "finished before" if not killed else "new" if found != before else "old"


@click.command()
@click.option("--kills", default=200)
@click.option("--only", type=click.Choice(["build", "quantize", "recipe"]), help="One of them alone.")
@click.option("--seed", default=0)
def main(kills: int, only: str | None, seed: int) -> None:
    """Kill each of build, quantize and recipe in turns, KILLS times in all."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as root:
        ground = Ground(Path(root))
        kinds = {
            "build": (ground.build, engine_state),
            "quantize": (ground.quantize, checkpoint_state),
            "recipe": (ground.recipe, engine_state),
        }
        kinds = {name: kind for name, kind in kinds.items() if only in (None, name)}
        for share, (name, (command, state)) in enumerate(kinds.items()):
            ground.clear()
            ground.learn(command)
            ground.clear()
            start = time.monotonic()
            assert ended(run(command)) == 0, (ground.root / "log").read_text()
            whole = time.monotonic() - start
            ends: dict[str, int] = {}
            for number in range((kills + share) // len(kinds)):
                if number % 2:
                    shutil.rmtree(ground.cache / "objects", ignore_errors=True)
                if number % 3 == 0 or name == "recipe":
                    ground.clear()
                after = moments.uniform(0, whole)
                try:
                    end = kill_once(ground, command, state, after)
                except BaseException:
                    click.echo(f"{name}, kill {number}, after {after:.4f} of {whole:.4f} s")
                    raise
                ends[end] = ends.get(end, 0) + 1
            click.echo(f"{name}: {sum(ends.values())} kills within {whole:.2f} s: {ends}")


if __name__ == "__main__":
    main()
