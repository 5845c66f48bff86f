"""Finding a C++ compiler, and compiling with it; objects are cached by all that goes into them."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ....atomic import temporary_folder
from ....blame import could_not_write
from ....errors import ToolchainError
from ....extras import install_command
from ....kept import find, keep
from ....plugins.cpu.isa import Isa
from ....plugins.discovery import include_folders

ENGINE_HEADERS = Path(__file__).resolve().parent / "include"
FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fPIC", "-shared", "-pthread"),
)
_OBJECT = "engine.so"
# A death signal (PR_SET_PDEATHSIG) would reach g++, not the compilers that it starts. So a process of their group waits
# for the end of its input, which comes when ours ends, however that ends, and kills the group.
_LEASHED = 'exec 3<&0 </dev/null; (read -r _; kill -KILL 0) <&3 3<&- >/dev/null 2>&1 & exec "$@" 3<&-'
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


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
    raise ToolchainError(
        "no C++ compiler was found (looked for CXX, g++, clang++ and ziglang): "
        "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++), or by "
        f"{install_command('toolchain')}, which brings the Zig C++ compiler, or name one in the variable CXX"
    )


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

    key: str
    compiler: Compiler
    object: Path | None = None
    process: "subprocess.Popen[str] | None" = None
    work: Path | None = None
    resources: ExitStack = field(default_factory=ExitStack)  # the folder that it works in, and its leash

    @property
    def cached(self) -> bool:
        return self.process is None and self.object is not None

    def wait(self) -> Path:
        """The shared object in the cache. Raises ToolchainError with the compiler's first lines if it refused."""
        if self.object is not None:
            return self.object
        assert self.process is not None
        assert self.work is not None
        with self.resources:
            output, _ = self.process.communicate()
            built = self.work / _OBJECT
            if self.process.returncode != 0 or not built.exists():
                raise ToolchainError(_refusal(self.compiler, self.process.returncode, output))
            self.object = keep("objects", self.key, lambda folder: shutil.copyfile(built, folder / _OBJECT)) / _OBJECT
        return self.object

    def cancel(self) -> None:
        """Stop the compiler, if it runs."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.resources.close()


def compile_source(source: str, isa: Isa, compiler: Compiler | None = None) -> Path:
    """The shared object of `source`, from the cache if it was compiled before."""
    return start_compiling(source, isa, compiler).wait()


def start_compiling(source: str, isa: Isa, compiler: Compiler | None = None) -> Compilation:
    """Begin to compile in a process of its own. The cache is keyed by source, headers, compiler and options."""
    compiler = compiler or find_compiler()
    key = object_key(source, compiler, isa)
    if (folder := find("objects", key)) is not None:
        return Compilation(key, compiler, folder / _OBJECT)
    includes = [f"-I{folder}" for folder in _include_folders()]
    with ExitStack() as resources:
        try:
            work = resources.enter_context(temporary_folder())
            (work / "engine.cpp").write_text(source)
            command = [
                *compiler.command,
                *_options(isa),
                *includes,
                str(work / "engine.cpp"),
                "-o",
                str(work / _OBJECT),
            ]
            process = _start_leashed(command, work, resources)
        except OSError as error:
            reason = could_not_write(f"temporary files of {compiler.name}", error)
            raise ToolchainError(f"{reason}. The variable TMPDIR names another place for them.") from error
        return Compilation(key, compiler, None, process, work, resources.pop_all())


def _start_leashed(command: list[str], work: Path, resources: ExitStack) -> "subprocess.Popen[str]":
    """Start a compiler in a session of its own, which ends when the leash is closed or this process dies."""
    held, leash = os.pipe()
    resources.callback(os.close, leash)
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _LEASHED, "sh", *command],
            stdin=held,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=work,
            env={**os.environ, "TMPDIR": str(work)},  # so that its own temporary files vanish with ours
            start_new_session=True,  # so that a kill reaches the compilers that g++ itself starts
        )
    finally:
        os.close(held)


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
    """Ours, then those of the variable ENGINESMITH_CXXFLAGS: the level of optimization changes no bit of an engine."""
    try:
        more = shlex.split(os.environ.get("ENGINESMITH_CXXFLAGS", ""))
    except ValueError as error:
        raise ToolchainError(f"ENGINESMITH_CXXFLAGS={os.environ['ENGINESMITH_CXXFLAGS']!r}: {error}") from None
    return (*FLAGS, *isa.compiler_flags, *more)


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
