"""Measures what each scheme costs: quantizes a checkpoint, builds the engine, evaluates it; prints a Markdown table.

    python benchmarks/quality.py CHECKPOINT [--row "int4 g128 awq" ...] [--tokens N] [--calibration X] [--work FOLDER]

CHECKPOINT: a Hugging Face folder or a GGUF file. Every row is a real engine, run as it serves; perplexity is that of
`enginesmith eval ENGINE` with its default text, window and stride. The first row is the checkpoint itself in
Transformers in float32, which the others are relative to. "seconds" and "peak GB" are of the process that quantized
(rows without one were rounded while they were built). --calibration is given to the rows that calibrate. With --work,
what lies there is used again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CLI = "from enginesmith.cli.start import main; main()"
MEASURED = """
import json, resource, sys, time
start = time.monotonic()
from enginesmith.cli.main import cli
cli.main(sys.argv[1:], prog_name="enginesmith", standalone_mode=False)
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({"seconds": time.monotonic() - start, "peak": peak / 1e6}))
"""


@dataclass(frozen=True)
class Row:
    """Options of `enginesmith quantize` (none: not run) and of `enginesmith build`."""

    name: str
    quantize: str = ""
    build: str = ""

    @property
    def calibrates(self) -> bool:
        """Whether `quantize` needs calibration data."""
        return any(word in self.quantize.split() for word in ("awq", "gptq", "smoothquant", "static", "--calibration"))


def _int4(method: str, group: int, calibration: str = "") -> Row:
    options = f"--method {method} --bits 4 --group-size {group}" + (calibration and f" --calibration {calibration}")
    return Row(f"int4 g{group} {method} {calibration}".rstrip(), options)


ROWS = (
    Row("bf16"),
    Row("bf16, KV cache int8", build="--kv-cache int8"),
    Row("bf16, KV cache fp8", build="--kv-cache fp8"),
    Row("int4 g32, build --weights", build="--weights int4 --group-size 32"),
    Row("int4 g32, head int4", build="--weights int4 --group-size 32 --head int4"),
    Row("int8", build="--weights int8"),
    Row("int8 g32", build="--weights int8 --group-size 32"),
    Row("int8, embedding int8", build="--weights int8 --embedding int8"),
    Row("int8, KV cache int8 static", "--method rtn --bits 8 --kv-cache int8 --calibration topics"),
    Row("fp8", build="--weights fp8"),
    Row("fp8 topics", "--method fp8 --activations none --calibration topics"),
    Row("fp8 W8A8 dynamic", "--method fp8"),
    Row("fp8 W8A8 dynamic topics", "--method fp8 --calibration topics"),
    Row("fp8 W8A8 static", "--method fp8 --activations static"),
    Row("smoothquant W8A8 dynamic", "--method smoothquant"),
    Row("smoothquant W8A8 static", "--method smoothquant --activations static"),
    *(_int4(method, group) for group in (128, 32) for method in ("rtn", "awq", "gptq")),
    *(_int4(method, 32, "topics") for method in ("awq", "gptq")),
)


def run(arguments: list[str], code: str = CLI) -> str:
    """The output of an `enginesmith` command; its own messages go to the terminal."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def evaluate(subject: Path | str, tokens: int) -> float:
    """Perplexity."""
    return json.loads(run(["eval", str(subject), "--tokens", str(tokens), "--json"]))["perplexity"]


def place(row: Row, work: Path, suffix: str) -> Path:
    """Where what belongs to a row is kept."""
    return work / (row.name.replace(",", "").replace(" ", "-") + suffix)


def quantize(row: Row, checkpoint: str, work: Path, calibration: str | None) -> tuple[str, dict[str, float]]:
    """The checkpoint that a row's engine is built from, and what its quantization took."""
    if not row.quantize:
        return checkpoint, {}
    out, costs = place(row, work, ".checkpoint"), place(row, work, ".costs.json")
    if not costs.exists():
        options = row.quantize.split()
        if calibration and row.calibrates:
            options += ["--calibration", calibration]
        output = run(["quantize", checkpoint, "-o", str(out), *options], MEASURED)
        costs.write_text(output.splitlines()[-1])
    return str(out), json.loads(costs.read_text())


def measure(row: Row, source: str, work: Path, tokens: int) -> float:
    """Perplexity of a row's engine, built from the checkpoint `source`."""
    engine = place(row, work, ".engine")
    if not engine.exists():
        options = ["--max-batch-size", "256", "--max-seq-len", "1024", "--no-check", *row.build.split()]
        run(["build", source, "-o", str(engine), *options])
    return evaluate(engine, tokens)


def reference_of(checkpoint: str, work: Path, tokens: int) -> float:
    """The checkpoint's own perplexity."""
    kept = work / f"reference-{tokens}.json"
    if not kept.exists():
        kept.write_text(json.dumps(evaluate(checkpoint, tokens)))
    return json.loads(kept.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS], help="default: all")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of the text to use (8192)")
    parser.add_argument("--calibration", help="of the rows that calibrate (default: quantize's own)")
    parser.add_argument("--work", type=Path, help="keep folders here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        reference = reference_of(arguments.checkpoint, work, arguments.tokens)
        print("| scheme | perplexity | relative | seconds | peak GB |\n| --- | ---: | ---: | ---: | ---: |")
        print(f"| unquantized, float32 | {reference:.4f} | | | |", flush=True)
        for row in ROWS:
            if arguments.row and row.name not in arguments.row:
                continue
            source, costs = quantize(row, arguments.checkpoint, work, arguments.calibration)
            found = measure(row, source, work, arguments.tokens)
            took = f"{costs['seconds']:.0f} | {costs['peak']:.2f}" if costs else "|"
            print(f"| {row.name} | {found:.4f} | {found / reference - 1:+.2%} | {took} |", flush=True)


if __name__ == "__main__":
    main()
