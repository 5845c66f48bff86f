"""Texts of a data set of the Hugging Face Hub, downloaded as the plain files it is made of."""

from collections.abc import Iterator
from pathlib import Path

from ...errors import BuildError
from ...progress import Progress
from .text_files import read_texts

_KINDS = (".jsonl", ".txt", ".parquet")
_TEXT = "text"
_PATIENCE = 10  # seconds for the Hub to answer


def fetch_texts(name: str, progress: Progress) -> Iterator[str]:
    """The texts of a file of the data set `name` ("org/name", or "org/name@revision"), by preference of its training
    split: a JSONL file, a text file, or a Parquet file (which needs pyarrow) with a column "text".

    Raises BuildError where there is no such data set, the Hub cannot be reached, or no file can be read.
    """
    path = _download(name, progress)
    if path.suffix == ".parquet":
        return _parquet(path, name)
    return read_texts(path)


def _download(name: str, progress: Progress) -> Path:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError

    repository, _, revision = name.partition("@")
    revision = revision or None
    try:
        with progress.task(f"Downloading {name}"):
            # One request; to list a repository's tree is tried again and again, with a warning each time.
            found = HfApi().dataset_info(repository, revision=revision, timeout=_PATIENCE)
            file = _choose([each.rfilename for each in found.siblings or ()], name)
            return Path(hf_hub_download(repository, file, repo_type="dataset", revision=revision))
    except RepositoryNotFoundError as error:
        raise BuildError(f"calibration: {name} is neither a file nor a data set of the Hub") from error
    except BuildError:
        raise
    except Exception as error:  # whatever the Hub's HTTP library raises without a network
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BuildError(
            f"calibration: {name} is no file, and the Hub could not be reached ({reason}); give a text or JSONL file, "
            "or leave it out"
        ) from error


def _choose(files: list[str], name: str) -> str:
    """The first file of a kind that is read, of the training split if there is one."""
    known = [file for kind in _KINDS for file in sorted(files) if file.endswith(kind)]
    if not known:
        raise BuildError(f"calibration: the data set {name} has no file that can be read ({', '.join(_KINDS)})")
    return next((file for file in known if "train" in file), known[0])


def _parquet(path: Path, name: str) -> Iterator[str]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        raise BuildError(
            f"calibration: the data set {name} is stored as Parquet, which needs pyarrow: pip install pyarrow; or give "
            "a text or JSONL file"
        ) from None
    file = parquet.ParquetFile(path)
    if _TEXT not in file.schema_arrow.names:
        raise BuildError(
            f'calibration: the data set {name} has no column "text", but {", ".join(file.schema_arrow.names)}'
        )
    for batch in file.iter_batches(columns=[_TEXT]):
        yield from (str(text) for text in batch.column(0).to_pylist() if text)
