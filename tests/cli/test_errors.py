"""Bad input: one clear message, exit code 2, nothing left behind."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from enginesmith.extras import install_command

Cli = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., list[str]]


def _assert_refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    message = done.stderr[done.stderr.lower().index("error: ") :]
    for part in parts:
        assert part in message


def _leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_not_a_checkpoint(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    _assert_refused(cli("build", tmp_path / "in", "-o", tmp_path / "out"), "config.json")
    _assert_refused(cli("build", tmp_path / "absent", "-o", tmp_path / "out"), "absent")
    assert _leftovers(tmp_path) == ["in"]


def test_corrupt_checkpoint(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoint, tmp_path / "in"))
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    _assert_refused(cli("build", broken, "-o", tmp_path / "out"), "model.safetensors")
    assert _leftovers(tmp_path) == ["in"]


def test_no_compiler(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    done = cli("build", checkpoint, "-o", tmp_path / "out", env={"CXX": "/nonexistent/c++"})
    _assert_refused(done, "/nonexistent/c++")
    assert _leftovers(tmp_path) == []


def test_output_that_is_not_an_engine_is_not_replaced(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    _assert_refused(cli("build", checkpoint, "-o", tmp_path), "not an engine")
    assert _leftovers(tmp_path) == ["precious.txt"]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--max-batch-size", "0"), ("--max-batch-size", "0")),
        (("--kv-block-size", "17"), ("--kv-block-size", "multiple of 16", "17")),
        (("--weights", "int3"), ("--weights", "int3", "int4")),
        (("--isa", "sse"), ("--isa", "avx2")),
        (("--embedding", "int4"), ("--embedding", "int4", "plain", "int8")),
        (("--embedding", "int8"), ("--embedding int8", "lm_head", "leave --embedding out")),
        (("--max-seq-len", "100000"), ("max_seq_len", "100000", "512")),
        (("--no-such",), ("--no-such",)),
    ],
)
def test_wrong_build_options(
    cli: Cli, checkpoint: Path, tmp_path: Path, flags: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    _assert_refused(cli("build", checkpoint, "-o", tmp_path / "out", *flags), *parts)
    assert _leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--max-tokens", "500"), ("max_tokens", "500", "400", "rebuild with --max-seq-len 505")),
        (("--max-tokens", "1000"), ("max_tokens", "1000", "rebuilt with --max-seq-len 512, all that the model")),
        (("--max-tokens", "0"), ("max_tokens", "0")),
        (("--temperature", "-1"), ("temperature", "-1")),
        (("--top-p", "1.5"), ("top_p", "1.5")),
        (("--logit-bias", "1000=1"), ("logit_bias", "1000", "128")),
        (("--logit-bias", "x"), ("--logit-bias", "ID=VALUE")),
        (("--stop-token-ids", "128"), ("stop_token_ids", "128")),
        (("--kv-cache-memory", "lots"), ("--kv-cache-memory", "lots")),
        (("--kv-cache-memory", "1kB"), ("max_seq_len", "kv_cache_memory")),
        (("--threads", "0"), ("threads must be an integer in [1, 1024]", "0")),
        (("--interactive",), ("--interactive",)),
    ],
)
def test_wrong_run_options(cli: Cli, engine: Path, flags: tuple[str, ...], parts: tuple[str, ...]) -> None:
    _assert_refused(cli("run", engine, "-p", "hello", *flags), *parts)


def test_not_an_engine(cli: Cli, tmp_path: Path) -> None:
    for name in ("run", "inspect", "bench"):
        _assert_refused(cli(name, tmp_path), str(tmp_path), "engine.json")


def test_flipped_byte(cli: Cli, damaged: Path) -> None:
    weights = damaged / "weights.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    _assert_refused(cli("run", damaged, "-p", "x"), "weights.bin", "damaged")


def test_engine_of_another_format_or_instruction_set(cli: Cli, damaged: Path) -> None:
    file = damaged / "engine.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"format_version": 99}))
    _assert_refused(cli("run", damaged, "-p", "x"), "format 99", "enginesmith build CHECKPOINT")
    target = manifest["target"] | {"cpu_flags": ["avx2", "avx9000"]}
    file.write_text(json.dumps(manifest | {"target": target}))
    _assert_refused(cli("run", damaged, "-p", "x"), "avx9000")
    assert cli("inspect", damaged).returncode == 0  # looking inside needs no such CPU


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_build_leaves_nothing(
    cli_environment: dict[str, str],
    command: Command,
    checkpoint: Path,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    # A source that no other test has, so that the compiler runs: the signal comes while the folder is half written.
    flags = ["build", checkpoint, "-o", work / "out", "--max-seq-len", 400, "--max-batch-size", 30 + number]
    process = subprocess.Popen(
        command(*flags),
        env=cli_environment | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not _leftovers(work):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status, stderr
    assert "Traceback" not in stderr
    assert _leftovers(work) == []
    assert [name for name in _leftovers(temporary) if name.startswith("enginesmith")] == []  # torch leaves its own


def test_a_full_disk(
    cli_environment: dict[str, str], engine: Path, command: Command, build_flags: list[object], tmp_path: Path
) -> None:
    room = (engine / "weights.bin").stat().st_size // 2
    done = subprocess.run(
        command(*build_flags, "-o", tmp_path / "out"),
        env=cli_environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    _assert_refused(done, "space")
    assert _leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", "smolm2"), ("smolm2", "smollm2-135m")),
        (("show", "smollm2-135m", "--set", "build.max_batchsize=8"), ("build.max_batchsize", "max_batch_size")),
        (("show", "smollm2-135m", "--set", "build.max_batch_size=many"), ("build.max_batch_size", "many")),
        (("show", "smollm2-135m", "--set", "nonsense"), ("nonsense", "KEY=VALUE")),
        (("show", "./absent.yaml"), ("absent.yaml",)),
    ],
)
def test_wrong_recipes(cli: Cli, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    _assert_refused(cli("recipe", *arguments), *parts)


def test_an_unknown_command(cli: Cli) -> None:
    _assert_refused(cli("biuld"), "biuld")


def test_building_without_the_build_extra(
    cli_environment: dict[str, str], command: Command, checkpoint: Path, tmp_path: Path
) -> None:
    """A plain install has no torch: a finder that hides it stands in for one."""
    hide = "import sys; sys.modules['torch'] = None; sys.modules['ml_dtypes'] = None; "
    arguments = command("build", checkpoint, "-o", tmp_path / "out")
    arguments[2] = hide + arguments[2]
    done = subprocess.run(arguments, env=cli_environment, capture_output=True, text=True, check=False)
    _assert_refused(done, install_command("build"))
    assert _leftovers(tmp_path) == []


def test_a_prompt_that_is_no_text(engine: Path, command: Command, cli_environment: dict[str, str]) -> None:
    arguments = command("run", engine)
    done = subprocess.run(arguments, env=cli_environment, capture_output=True, input=b"\xff\xfe", check=False)
    assert done.returncode == 2
    assert b"not text" in done.stderr or b"not valid Unicode" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["run", "inspect"])
def test_a_path_that_is_too_long(cli: Cli, name: str) -> None:
    _assert_refused(cli(name, "a" * 5000), "too long")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-p", "x", "--system", "be kind"), "--system goes with --chat or --interactive"),
        (("-p", "x", "--logprobs", "2"), "--logprobs goes with --json"),
    ],
)
def test_options_of_run_that_need_another(cli: Cli, engine: Path, flags: tuple[str, ...], said: str) -> None:
    _assert_refused(cli("run", engine, *flags), said)


def test_a_group_size_without_weights_to_quantize(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    _assert_refused(cli("build", checkpoint, "-o", tmp_path / "out", "--group-size", 32), "--group-size goes with")
    command = ("build", checkpoint, "-o", tmp_path / "out", "--group-size", 32, "--head", "int8")
    _assert_refused(cli(*command), "--group-size goes with")  # the head's groups are always of 64


def test_a_reader_that_leaves_is_no_error(command: Command, cli_environment: dict[str, str], engine: Path) -> None:
    """`enginesmith inspect ENGINE --json | head -1`."""
    process = subprocess.Popen(
        command("inspect", engine, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli_environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_a_chat_template_that_does_not_compile_is_told_at_once(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoint, tmp_path / "in"))
    (broken / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }")
    built = cli("build", broken, "--dtype", "fp32", "--max-seq-len", 400, "--max-batch-size", 4, "-o", tmp_path / "e")
    assert "warning: the chat template does not compile" in built.stderr
    assert built.returncode == 0
    done = cli("run", tmp_path / "e", "-p", "hi", "--max-tokens", 2)
    assert done.returncode == 0
    assert "the chat template does not compile" in done.stderr
