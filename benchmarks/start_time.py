"""Measures how long a process takes to its first token: `python benchmarks/start_time.py ENGINE [--runs 7]`.

Starts `enginesmith run ENGINE` again and again and takes the time until its first byte on standard output; files are in
the page cache and bytecode is kept, for the first run does not count. `import enginesmith` is what a process takes
beyond one that imports nothing. Ends with 1 where torch or transformers was imported.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROMPT = "The capital of France is"
HEAVY = ("torch", "transformers")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With that, every start would compile all modules again, as no installed program does."""
LOADED = f"""
import sys
from enginesmith.cli.main import main
status = main(["run", sys.argv[1], "-p", {PROMPT!r}, "--max-tokens", "1"])
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""


def script() -> str:
    """The console script that was installed beside this interpreter."""
    found = shutil.which("enginesmith", path=str(Path(sys.executable).parent)) or shutil.which("enginesmith")
    if found is None:
        sys.exit("enginesmith is not installed: pip install -e .")
    return found


def first_token(engine: Path) -> float:
    """Seconds from starting the process to its first byte of text."""
    command = [script(), "run", str(engine), "-p", PROMPT, "--max-tokens", "8", "--temperature", "0"]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        byte = process.stdout.read(1)
        seconds = time.perf_counter() - start
        process.stdout.read()
    if process.returncode or not byte:
        sys.exit(f"{' '.join(command)} gave no text")
    return seconds


def run_time(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def heavy_imports(engine: Path) -> list[str]:
    """What of HEAVY a run imports."""
    done = subprocess.run([sys.executable, "-c", LOADED, str(engine)], check=True, capture_output=True, text=True)
    return done.stderr.splitlines()[-1].split()


def show(name: str, times: list[float]) -> None:
    print(f"{name:42} median {statistics.median(times):.3f} s, from {min(times):.3f} to {max(times):.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("engine", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    first_token(arguments.engine)
    show("process start to first token", [first_token(arguments.engine) for _ in range(arguments.runs)])
    pairs = [(run_time("import enginesmith"), run_time("pass")) for _ in range(arguments.runs)]
    show("import enginesmith", [whole - bare for whole, bare in pairs])
    heavy = heavy_imports(arguments.engine)
    print(f"imported of {', '.join(HEAVY)}: {', '.join(heavy) or 'none'}")
    return int(bool(heavy))


if __name__ == "__main__":
    sys.exit(main())
