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


def beginning_of(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that it puts before every text, such as Gemma's <bos>."""
    plain, whole = (tokenizer.encode("a", add_special_tokens=special) for special in (False, True))
    at = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
    return whole[:at]
