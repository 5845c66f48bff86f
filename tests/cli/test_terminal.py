"""Every terminal: what its encoding lacks does not end the program, and no text of others steers it."""

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from enginesmith.cli.stream import advise, as_argument, stream
from enginesmith.cli.terminal import prepare, printable, write_json
from enginesmith.runtime.outputs import CompletionOutput

Cli = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., list[str]]
EVIL = "a\x1b]0;owned\x07\x9b31m\r\x7fé日🙂\tb\n"
SHOWN = "a\\x1b]0;owned\\x07\\x9b31m\\x0d\\x7fé日🙂\tb\n"


def on_a_terminal(command: list[str], *, encoding: str, environment: dict[str, str] | None = None) -> bytes:
    """What a command writes, stdout and stderr, where both are a terminal."""
    ours, theirs = pty.openpty()
    env = (environment or dict(os.environ)) | {"TERM": "xterm", "PYTHONIOENCODING": encoding, "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 4096):
            written += data
    except OSError:  # Linux ends a terminal whose other side is closed so
        pass
    os.close(ours)
    assert process.wait(60) == 0, written
    return written


def test_printable() -> None:
    assert printable(EVIL) == SHOWN


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_of_others_on_a_terminal(encoding: str) -> None:
    code = f"""
from enginesmith.cli.terminal import prepare, say
from enginesmith.cli.progress import terminal_progress
from enginesmith.cli.stream import stream
from enginesmith.runtime.outputs import CompletionOutput
import logging
prepare()
text = {EVIL!r}
say(text, bold=True)
logging.getLogger("enginesmith.runtime.llm").warning("%s", text)
with terminal_progress().task("[bold red]packing[/] [/] " + text[:5], 2) as task:
    task.advance()
stream([CompletionOutput(text, [1])])
"""
    written = on_a_terminal([sys.executable, "-c", code], encoding=encoding)
    for raw in (b"\x1b]", b"\x07", b"\x9b31m", "\x9b".encode(), b"\x7f"):
        assert raw not in written
    lines = SHOWN.encode(encoding, errors="backslashreplace").replace(b"\n", b"\r\n")
    assert written.count(lines) == 3, written
    assert b"[bold red]packing[/] [/] a\\x1b]0;" in written


def test_a_fault_is_told_with_its_traceback() -> None:
    code = """
import logging
from enginesmith.cli.terminal import prepare
prepare()
try:
    [][1]
except IndexError:
    logging.getLogger("enginesmith.serve").exception("a request failed")
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.splitlines()
    assert told[:2] == ["error: a request failed", "Traceback (most recent call last):"]
    assert told[-1] == "IndexError: list index out of range"


def test_model_text_is_raw_in_a_pipe(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    stream([CompletionOutput("\x1b[1m", [1])])
    assert capsysbinary.readouterr().out == b"\x1b[1m\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_valid_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    prepare()
    write_json({"text": EVIL + "\udc80"})
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == {"text": EVIL + "\udc80"}
    assert not set(raw.getvalue().decode(encoding)) & set("\x1b\x07\x9b\x7f")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_commands_with_an_encoding_that_lacks_characters(cli: Cli, engine: Path, tmp_path: Path, encoding: str) -> None:
    env = {"PYTHONIOENCODING": f"{encoding}:strict"}
    link = tmp_path / "Motor 日本"
    link.symlink_to(engine)
    many = cli("run", link, "-p", "日本", "-p", "b", "--max-tokens", 2, env=env)
    assert (many.returncode, "> \\u65e5\\u672c" in many.stdout) == (0, True), many.stderr
    as_json = cli("run", link, "-p", "日本🙂", "--max-tokens", 2, "--json", env=env)
    assert json.loads(as_json.stdout)["prompt"] == "日本🙂"
    assert cli("inspect", link, env=env).returncode == 0
    absent = cli("run", tmp_path / "日本 \x1b[31m", "-p", "x", env=env)
    assert absent.returncode == 2
    assert "error: " in absent.stderr
    assert "\\u65e5\\u672c \\x1b[31m is not an engine" in absent.stderr
    talk = cli("run", engine, "--interactive", "--max-tokens", 2, env=env, input="hello\n")
    assert talk.returncode == 0, talk.stderr
    unreadable = cli("run", engine, "--interactive", env={"PYTHONIOENCODING": "ascii:strict"}, input="日本\n")
    assert unreadable.returncode == 2
    assert "input is not text in ascii" in unreadable.stderr


@pytest.mark.parametrize("stderr", ["/dev/full", None])
def test_a_stderr_that_takes_nothing_ends_nothing(
    engine: Path, command: Command, cli_environment: dict[str, str], stderr: str | None
) -> None:
    run = shlex.join(map(str, command("run", engine, "-p", "a", "-p", "b", "--max-tokens", 2)))
    shell = ["sh", "-c", f"{run} 2>{stderr or '&-'}"]
    done = subprocess.run(shell, stdout=subprocess.PIPE, env=cli_environment, check=False)
    assert (done.returncode, b"> b\n" in done.stdout) == (0, True)


def test_what_to_go_on_with_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("-my engine's")
    advise("enginesmith", "run", as_argument(path), "-p", "your prompt")
    command = capsys.readouterr().err.strip().removeprefix("Go on with: ")
    assert shlex.split(command) == ["enginesmith", "run", "./-my engine's", "-p", "your prompt"]


def test_sigterm_ends_a_run_that_reads_without_end(
    engine: Path, command: Command, cli_environment: dict[str, str]
) -> None:
    source = subprocess.Popen(["yes", ""], stdout=subprocess.PIPE)  # each character is a line: the limit is far
    process = subprocess.Popen(command("run", engine), stdin=source.stdout, stderr=subprocess.PIPE, env=cli_environment)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    try:
        _, said = process.communicate(timeout=30)
    finally:
        source.kill()
        source.wait()
    assert process.returncode in (143, 2)  # 2: so fast a machine that the limit came first
    assert b"Traceback" not in said


@pytest.mark.parametrize("flags", [(), ("--interactive",)])
def test_input_without_an_end_is_too_long(
    engine: Path, command: Command, cli_environment: dict[str, str], flags: tuple[str, ...]
) -> None:
    with Path("/dev/zero").open() as source:
        done = subprocess.run(
            command("run", engine, *flags), stdin=source, env=cli_environment, capture_output=True, check=False
        )
    assert done.returncode == 2
    assert b"characters" in done.stderr
    assert b"Traceback" not in done.stderr


def test_ctrl_c_at_any_time_leaves_no_traceback(command: Command, cli_environment: dict[str, str]) -> None:
    """From the moment that the command's own code runs; before, the interpreter starts, and answers as it likes."""
    code = "import sys; print('ready', flush=True); from enginesmith.cli.start import main; main(['run', '--help'])"
    for delay in range(0, 200, 20):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli_environment
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay / 1000 + 0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert b"start.py" not in said, (delay, said)
        assert process.returncode in (0, 130, -signal.SIGINT), (delay, said)
