"""A checkpoint's tokenizer, as builds, calibration and evaluation use it."""

from pathlib import Path

from ..atomic import temporary_folder
from ..checkpoint.chat_templates import find_chat_templates, save_chat_templates
from ..checkpoint.tokenizer_files import has_tokenizer, save_tokenizer
from ..errors import ChatTemplateError, CheckpointError, EngineError
from ..runtime.tokenizer import Tokenizer, load_tokenizer


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint's folder, converted where it has only a slow one's files; without any, a
    NoTokenizer. Raises CheckpointError for files that cannot be read or converted.
    """
    if (folder / "tokenizer.json").is_file() or not has_tokenizer(folder):
        return _load(folder, folder)
    with temporary_folder() as converted:
        save_tokenizer(folder, converted)
        return _load(converted, folder)


def save_engine_tokenizer(checkpoint: Path, output: Path) -> str | None:
    """Write a checkpoint's tokenizer and chat templates as an engine has them, and see that the runtime can use them.

    Returns why the chat templates cannot be used, or None; without them the engine still takes prompts. Raises
    CheckpointError for a tokenizer that cannot be read or converted.
    """
    save_tokenizer(checkpoint, output)
    tokenizer = _load(output, checkpoint)
    try:
        save_chat_templates(find_chat_templates(checkpoint), output)
        if tokenizer.chat_template is not None:
            tokenizer.chat_template.check()
    except ChatTemplateError as error:
        return str(error)
    return None


def _load(folder: Path, checkpoint: Path) -> Tokenizer:
    try:
        return load_tokenizer(folder)
    except EngineError as error:
        reason = str(error).replace(str(folder), str(checkpoint))
        raise CheckpointError(f"{reason}. The tokenizer is damaged; download it again.") from None
