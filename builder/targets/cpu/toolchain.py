"""Finding a C++ compiler, and compiling with it; objects are cached by all that goes into them."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ....atomic import new_file
from ....cache import cache_dir
from ....errors import ToolchainError
from ....plugins.cpu.isa import Isa
from ....plugins.registry import include_folders

ENGINE_HEADERS = Path(__file__).resolve().parent / "include"
FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fPIC", "-shared", "-pthread"),
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_ADVICE = (
    "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++), or "
    "'pip install enginesmith[toolchain]', which brings the Zig C++ compiler, or name one in the variable CXX"
)


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C++, and how it introduces itself."""

    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        return " ".join(self.command)


def find_compiler() -> Compiler:
    """CXX if set, else g++, clang++, or `zig c++` of the package ziglang. Raises ToolchainError if there is none."""
    named = os.environ.get("CXX")
    if named:
        try:
            compiler = _introduce(tuple(shlex.split(named)))
        except ValueError:  # a quotation without end
            compiler = None
        if compiler is None:
            raise ToolchainError(f"CXX={named!r} does not run; unset it or name a C++17 compiler")
        return compiler
    for command in _candidates():
        compiler = _introduce(command)
        if compiler is not None:
            return compiler
    raise ToolchainError(f"no C++ compiler was found (looked for CXX, g++, clang++ and ziglang): {_ADVICE}")


def _candidates() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [(path,) for name in ("g++", "clang++") if (path := shutil.which(name))]
    if find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "c++"))
    return found


@cache
def _introduce(command: tuple[str, ...]) -> Compiler | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Compiler(command, done.stdout.strip()) if done.returncode == 0 else None


@dataclass
class Compilation:
    """A compilation under way, or one that the cache had. `wait` gives the shared object."""

    target: Path
    key: str
    cached: bool
    compiler: Compiler
    process: "subprocess.Popen[str] | None" = None
    work: Path | None = None

    def wait(self) -> Path:
        """The shared object in the cache. Raises ToolchainError with the compiler's first lines if it refused."""
        if self.process is None:
            return self.target
        output, _ = self.process.communicate()
        code, self.process = self.process.returncode, None
        assert self.work is not None
        try:
            built = self.work / "engine.so"
            if code != 0 or not built.exists():
                raise ToolchainError(_refusal(self.compiler, code, output))
            with new_file(self.target) as temporary:
                shutil.copyfile(built, temporary)
        finally:
            _remove(self.work)
        return self.target

    def cancel(self) -> None:
        """Stop the compiler, if it runs."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
        if self.work is not None:
            _remove(self.work)


def _remove(work: Path) -> None:
    """Remove a compiler's folder, again while a compiler that is still dying writes to it; it fails without it."""
    for _ in range(100):
        shutil.rmtree(work, ignore_errors=True)
        if not work.exists():
            return
        time.sleep(0.02)


def compile_engine(source: str, isa: Isa, compiler: Compiler | None = None) -> Path:
    """The shared object of `source`, from the cache if it was compiled before."""
    return start_compiling(source, isa, compiler).wait()


def start_compiling(source: str, isa: Isa, compiler: Compiler | None = None) -> Compilation:
    """Begin to compile in a process of its own. The cache is keyed by source, headers, compiler and options."""
    compiler = compiler or find_compiler()
    key = object_key(source, compiler, isa)
    target = cache_dir("objects") / f"{key}.so"
    if target.exists():
        return Compilation(target, key, cached=True, compiler=compiler)
    work = Path(tempfile.mkdtemp(prefix="enginesmith-compile-"))
    try:
        (work / "engine.cpp").write_text(source)
        includes = [f"-I{folder}" for folder in _include_folders()]
        options = _options(isa)
        command = [*compiler.command, *options, *includes, str(work / "engine.cpp"), "-o", str(work / "engine.so")]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=work,
            env={**os.environ, "TMPDIR": str(work)},  # so that its own temporary files vanish with ours
            start_new_session=True,  # so that `cancel` reaches the compilers that g++ itself starts
        )
    except BaseException as error:  # Ctrl-C too
        _remove(work)
        if isinstance(error, OSError):
            raise ToolchainError(f"{compiler.name} could not be started: {error}") from error
        raise
    return Compilation(target, key, cached=False, compiler=compiler, process=process, work=work)


def headers_of(source: str) -> dict[str, str]:
    """All headers of ours that `source` includes, directly or not, by name, with their text."""
    found: dict[str, str] = {}
    pending = [(name, None) for name in _INCLUDE.findall(source)]
    while pending:
        name, parent = pending.pop()
        path = _resolve(name, parent)
        if path is None or str(path) in found:
            continue
        found[str(path)] = text = path.read_text()
        pending += [(inner, path.parent) for inner in _INCLUDE.findall(text)]
    return found


def _resolve(name: str, beside: Path | None) -> Path | None:
    folders = [*([beside] if beside else []), *_include_folders()]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _include_folders() -> list[Path]:
    return [*include_folders(), ENGINE_HEADERS]


def _options(isa: Isa) -> tuple[str, ...]:
    return (*FLAGS, *isa.compiler_flags)


def object_key(source: str, compiler: Compiler, isa: Isa) -> str:
    """What an object is cached under: a digest of the source, all its headers, the compiler and its options."""
    digest = hashlib.sha256()
    headers = sorted(headers_of(source).values())
    for part in (source, compiler.name, compiler.version, " ".join(_options(isa)), *headers):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:40]


def _refusal(compiler: Compiler, code: int, output: str) -> str:
    first = [line for line in output.splitlines() if "error" in line][:5] or output.splitlines()[:5]
    reason = "\n".join("  " + line[:300] for line in first) or "  it said nothing"
    version = (compiler.version.splitlines() or ["unknown version"])[0]
    return (
        f"{compiler.name} ({version}) could not compile the engine, exit status {code}:\n{reason}\n"
        "g++ 11 or newer and clang++ are known to work; set CXX to use another compiler"
    )
