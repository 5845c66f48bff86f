"""Measures the linear kernels beside this machine's ceilings: `python benchmarks/kernels.py [--threads N]`.

Prints a table: time a call, weights read a second and their share of the read bandwidth measured in the same run,
operations a second and their share of the peak of the AVX2 instruction that the weight type uses (FMA for fp32, bf16
and fp8, 16-bit multiply-add for int8, 8-bit for int4; adding the product included, unpacking not).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from enginesmith.plugins.cpu.isa import Isa

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=off", "-pthread"]


def parse(line: str) -> dict[str, str | float]:
    """`name key=value ...` to a dictionary; numbers become floats."""
    kind, *pairs = line.split()
    result: dict[str, str | float] = {"kernel": kind}
    for key, value in (pair.split("=") for pair in pairs):
        result[key] = value if key == "type" else float(value)
    return result


def measure(threads: int, weight_type: str, isa: Isa, *, decode: bool) -> list[dict[str, str | float]]:
    """The ceilings, then a record a measurement."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "linear"
        source = ROOT / "benchmarks" / "linear.cpp"
        compiler = os.environ.get("CXX", "g++")
        flags = [*FLAGS, *isa.compiler_flags, "-I", str(ROOT / "plugins")]
        subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
        arguments = [str(threads), weight_type, "decode" if decode else ""]
        output = subprocess.run([program, *arguments], check=True, text=True, stdout=subprocess.PIPE)
    return [parse(line) for line in output.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    types = "fp32, bf16, fp8, fp8-g128, int8, int8-g64, int4-g32, int4-g64, int4-g128 or symmetric-int4-g64"
    parser.add_argument("--type", default="", help=f"{types}; all by default")
    parser.add_argument("--isa", type=Isa, choices=list(Isa), default=Isa.AVX2, help="instructions to compile for")
    parser.add_argument("--decode", action="store_true", help="one token through the layers of Llama 3.2 1B instead")
    parser.add_argument("--json", type=Path, help="write the records here, too")
    arguments = parser.parse_args()
    ceilings, *records = measure(arguments.threads, arguments.type, arguments.isa, decode=arguments.decode)
    print(
        f"{ceilings['threads']:.0f} threads: reads {ceilings['read']:.1f} GB/s, FMA {ceilings['fma']:.0f} GFLOP/s, "
        f"16-bit multiply-add {ceilings['madd']:.0f} GOP/s, 8-bit {ceilings['maddubs']:.0f} GOP/s"
    )
    heads = f"{'kernel':10}{'type':>19}{'N':>7}{'K':>6}{'M':>5}{'us':>11}"
    print(f"{heads}{'GB/s':>8}{'of reads':>9}{'GOP/s':>8}{'of peak':>8}")
    for r in records:
        print(
            f"{r['kernel']:10}{r['type']:>19}{r['n']:7.0f}{r['k']:6.0f}{r['m']:5.0f}{r['us']:11.1f}{r['gbs']:8.1f}"
            f"{r['read_share']:9.0%}{r['gops']:8.1f}{r['peak_share']:8.0%}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([ceilings, *records], indent=1))


if __name__ == "__main__":
    sys.exit(main())
