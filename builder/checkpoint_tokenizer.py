"""A checkpoint's tokenizer, as calibration and evaluation use it."""

import tempfile
from pathlib import Path

from ..checkpoint.tokenizer_files import has_tokenizer, save_tokenizer
from ..errors import CheckpointError, EngineError
from ..runtime.tokenizer import Tokenizer, load_tokenizer


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint's folder, converted where it has only a slow one's files; without any, a
    NoTokenizer. Raises CheckpointError for files that cannot be read or converted.
    """
    try:
        if (folder / "tokenizer.json").is_file() or not has_tokenizer(folder):
            return load_tokenizer(folder)
        with tempfile.TemporaryDirectory() as converted:
            save_tokenizer(folder, Path(converted))
            return load_tokenizer(Path(converted))
    except EngineError as error:
        raise CheckpointError(f"{error}. The tokenizer is damaged; download it again.") from None
