"""What each command prints when all is well."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]
GREEDY = ("--temperature", "0", "--ignore-eos")


def test_help_names_every_command_and_imports_none() -> None:
    code = "import sys; from enginesmith.cli import main; main.main(['--help']); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("build", "run", "eval", "inspect", "bench", "tune", "recipe", "doctor"):
        assert f"  {name} " in out
    modules = out.splitlines()[-1].split()
    assert not {"numpy", "pydantic", "rich", "yaml", "torch"} & set(modules)


@pytest.mark.parametrize("name", ["build", "run", "eval", "inspect", "bench", "tune", "recipe", "doctor"])
def test_every_command_has_help(cli: Cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: enginesmith {name}")


def test_build_offers_every_field_of_its_config(cli: Cli) -> None:
    from enginesmith.builder.build_options import BuildConfig

    text = cli("build", "--help").stdout
    for field in BuildConfig.model_fields:
        assert "--" + field.replace("_", "-") in text


def test_build_says_what_it_made(built: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, done = built
    assert done.returncode == 0, done.stderr
    for part in (str(output), "LlamaForCausalLM", "seconds", "worst logit distance", "top-1 agreement"):
        assert part in done.stdout
    manifest = json.loads((output / "engine.json").read_text())
    limits = {"max_batch_size": 4, "max_num_tokens": 512, "max_seq_len": 400, "max_logits_rows": 64}
    assert manifest["limits"] == limits
    assert manifest["quantization"]["scheme"] == "fp32"
    assert [path.name for path in output.parent.iterdir()] == ["tiny.engine"]


def test_run_streams_one_prompt(cli: Cli, engine: Path) -> None:
    done = cli("run", engine, "-p", "hello", "--max-tokens", 8, *GREEDY)
    assert done.returncode == 0, done.stderr
    assert "8 tokens, first after" in done.stderr
    assert "tokens/s" in done.stderr


def test_run_holds_answers_to_a_form(cli: Cli, engine: Path, tmp_path: Path) -> None:
    done = cli("run", engine, "-p", "hello", "--regex", "[a-c]{3}", "--max-tokens", 8, "--json")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("[a-c]{3}", json.loads(done.stdout)["text"])
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": [1, "a"]}')
    done = cli("run", engine, "--chat", "-p", "hello", "--json-schema", schema, "--max-tokens", 8)
    assert done.stdout.strip() in ("1", '"a"'), done.stderr
    done = cli("run", engine, "-p", "hello", "--json-schema", schema, "--regex", "a")
    assert done.returncode == 2
    assert "--json-schema and --regex contradict each other" in done.stderr


def test_run_json_is_a_line_a_prompt_and_batching_changes_nothing(cli: Cli, engine: Path) -> None:
    prompts = ["hello", "a longer prompt", "x"]
    flags = [part for prompt in prompts for part in ("-p", prompt)]
    done = cli("run", engine, *flags, "--json", "--max-tokens", 6, "--logprobs", 2, *GREEDY)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["prompt"] for line in lines] == prompts
    for line in lines:
        assert line["output_tokens"] == len(line["token_ids"]) == len(line["logprobs"]) == 6
        assert line["finish_reason"] == "length"
        assert line["ttft_s"] > 0
        assert line["tokens_per_s"] > 0
        alone = cli("run", engine, "-p", line["prompt"], "--json", "--max-tokens", 6, *GREEDY)
        assert json.loads(alone.stdout)["token_ids"] == line["token_ids"]


def test_run_shows_several_prompts_with_their_texts(cli: Cli, engine: Path) -> None:
    done = cli("run", engine, "-p", "one", "-p", "two", "--max-tokens", 4, *GREEDY)
    assert "> one" in done.stdout
    assert "> two" in done.stdout


def test_run_reads_standard_input(cli: Cli, engine: Path) -> None:
    flags = ("--json", "--max-tokens", 4, *GREEDY)
    piped, given = cli("run", engine, *flags, input="hello\n"), cli("run", engine, "-p", "hello", *flags)
    assert json.loads(piped.stdout)["token_ids"] == json.loads(given.stdout)["token_ids"]


def test_run_chat_uses_the_template(cli: Cli, engine: Path) -> None:
    flags = ("--json", "--max-tokens", 5, *GREEDY)
    chat = cli("run", engine, "--chat", "--system", "be kind", "-p", "hi", *flags)
    plain = cli("run", engine, "-p", "system: be kind\nuser: hi\na: ", *flags)
    assert json.loads(chat.stdout)["token_ids"] == json.loads(plain.stdout)["token_ids"]


def test_interactive_holds_a_conversation(cli: Cli, engine: Path) -> None:
    done = cli(
        "run", engine, "--interactive", "--max-tokens", 4, *GREEDY, input="hi\n/clear\nhi\n\n/exit\nnever asked\n"
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert answers[0] == answers[1]
    assert done.stderr.count("[4 tokens") == 2


def test_interactive_goes_on_after_a_turn_that_is_too_long(cli: Cli, engine: Path) -> None:
    done = cli("run", engine, "--interactive", "--max-tokens", 4, *GREEDY, input=f"{'x' * 500}\nhi\n")
    assert done.returncode == 0
    assert "max_seq_len" in done.stderr
    assert done.stderr.count("[4 tokens") == 1


def test_inspect(cli: Cli, engine: Path) -> None:
    text = cli("inspect", engine).stdout
    for part in ("LlamaForCausalLM", "max_seq_len", "400 tokens", "KV cache", "Fused", "Kernels", "top-1 agreement"):
        assert part in text
    assert "32.8 kB of it embedding tables" in text
    data = json.loads(cli("inspect", engine, "--json").stdout)
    manifest, memory = data["manifest"], data["memory"]
    assert memory["weights"] == (engine / "weights.bin").stat().st_size
    assert memory["embedding_tables"] == 128 * 64 * 4
    assert memory["kv_per_token"] == 2 * 2 * 2 * 16 * 4  # K and V, layers, heads, head size, bytes
    assert memory["kv_at_limits"] == manifest["limits"]["max_batch_size"] * memory["kv_one_sequence"]
    assert "linear<" in cli("inspect", engine, "--tactics").stdout


def test_doctor(cli: Cli) -> None:
    data = json.loads(cli("doctor", "--no-measure", "--json").stdout)
    names = {finding["name"]: finding for finding in data["findings"]}
    assert {"instruction sets", "cores", "memory", "C++ compiler", "build libraries", "target cpu"} <= names.keys()
    assert names["build libraries"]["ok"]
    assert "torch" in names["build libraries"]["value"]


def test_doctor_without_a_compiler_says_what_to_install(cli: Cli) -> None:
    done = cli("doctor", "--no-measure", env={"CXX": "/nonexistent/c++"})
    assert done.returncode == 0
    assert "warn" in done.stdout
    assert "CXX" in done.stdout
    assert "runs engines, cannot build them" in done.stdout


def test_bench(cli: Cli, engine: Path) -> None:
    done = cli("bench", engine, "--runs", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert "w2 needs max_seq_len 1025, this engine has 400" in done.stderr
    data = json.loads(done.stdout)
    assert data["workloads"].keys() == {"w1", "w3"}
    w1, w3 = data["workloads"]["w1"], data["workloads"]["w3"]
    assert (w1["prompt_tokens"], w1["output_tokens"]) == (128, 128)
    assert (w3["prompt_tokens"], w3["output_tokens"]) == (4531, 1926)
    for workload in (w1, w3):
        assert workload["tokens_per_s"] > 0
        assert 0 < workload["ttft_s"]["median"] <= workload["ttft_s"]["p99"]
        assert 0 < workload["time_between_tokens_s"]["median"] <= workload["time_between_tokens_s"]["p99"]
    assert 0 < w1["read"]["share"] < 1
    assert w1["read"]["share"] == pytest.approx(w1["read"]["achieved_per_s"] / w1["read"]["ceiling_per_s"])
    assert 0 < w3["compute"]["share"] < 1


def test_bench_as_a_table_of_one_workload(cli: Cli, engine: Path) -> None:
    done = cli("bench", engine, "-w", "w1", "--runs", 1, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "1 threads" in done.stdout
    assert "W1 decode" in done.stdout
    assert "W3" not in done.stdout


def test_bench_refuses_a_workload_that_does_not_fit(cli: Cli, engine: Path) -> None:
    done = cli("bench", engine, "-w", "w2")
    assert done.returncode == 2
    assert "--max-seq-len 1025" in done.stderr


def test_eval_of_an_engine_beside_its_checkpoint(cli: Cli, engine: Path, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 4)
    flags = ("--against", checkpoint, "--text", tmp_path / "text.txt", "--window", 40, "--stride", 20)
    done = cli("eval", engine, *flags)
    assert done.returncode == 0, done.stderr
    for part in ("perplexity", "ratio", "1.0000", "KL divergence", "top-1 agreement", "windows of 40, stride 20"):
        assert part in done.stdout
    data = json.loads(cli("eval", checkpoint, *flags[2:], "--json").stdout)
    assert data["tokens"] == 4 * 45 - 1
    assert f"{data['perplexity']:.4f}" in done.stdout
    assert data["comparison"] is None
