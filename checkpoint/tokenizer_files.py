"""A checkpoint's tokenizer: which files it is made of, its end-of-sequence token."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .chat_templates import template_files
from .config import read_json, read_optional_json

_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_SLOW = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "merges.txt", "sentencepiece.bpe.model")
_OTHERS = ("added_tokens.json", "chat_template.json", "generation_config.json")


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint brings any tokenizer; an engine without one takes and gives token ids."""
    return any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"))


def tokenizer_files(folder: Path) -> list[Path]:
    """The tokenizer's files that an engine needs and that are present, tokenizer.json first."""
    return [*(path for name in _FILES if (path := folder / name).exists()), *template_files(folder)]


def eos_token(folder: Path) -> str | None:
    """The tokenizer's own end-of-sequence token, as text."""
    return _content(read_optional_json(folder / "tokenizer_config.json").get("eos_token")) or _content(
        read_optional_json(folder / "special_tokens_map.json").get("eos_token")
    )


def token_id(folder: Path, token: str) -> int | None:
    """The id of a token, looked up in tokenizer.json's added tokens, then in its vocabulary."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    tokenizer = read_json(path)
    for entry in tokenizer.get("added_tokens") or ():
        if isinstance(entry, dict) and entry.get("content") == token and isinstance(entry.get("id"), int):
            return entry["id"]
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return vocab.get(token) if isinstance(vocab.get(token), int) else None
    return next((index for index, text in _unigram(vocab) if text == token), None)


def save_tokenizer(folder: Path, output: Path) -> list[Path]:
    """Copy a checkpoint's tokenizer into the folder `output`, without its chat templates.

    Where only a slow tokenizer's files exist, Transformers converts them; code in the checkpoint is never run.
    Raises CheckpointError where there is no tokenizer, or it cannot be converted.
    """
    output.mkdir(parents=True, exist_ok=True)
    if (folder / "tokenizer.json").exists():
        for name in _FILES:
            if (folder / name).exists():
                shutil.copyfile(folder / name, output / name)
    else:
        _convert_slow(folder, output)
    return tokenizer_files(output)


def copy_tokenizer(folder: Path, output: Path) -> None:
    """Copy all that a checkpoint has of a tokenizer, as it is, with its generation config, into `output`."""
    for name in (*_FILES, *_SLOW, *_OTHERS):
        if (folder / name).exists():
            shutil.copyfile(folder / name, output / name)
    for path in template_files(folder):
        copy = output / path.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)


def _convert_slow(folder: Path, output: Path) -> None:
    found = [name for name in _SLOW if (folder / name).exists()]
    if not found:
        raise CheckpointError(f"{folder}: no tokenizer: neither tokenizer.json nor any of {', '.join(_SLOW)} is there.")
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        tokenizer.save_pretrained(str(output))
    except Exception as error:  # Transformers raises whatever its parsers raise
        raise CheckpointError(
            f"{folder}: {', '.join(found)} could not be converted to tokenizer.json: {error}"
        ) from error
    if not (output / "tokenizer.json").exists():
        raise CheckpointError(f"{folder}: {', '.join(found)} has no fast form, and enginesmith needs tokenizer.json.")


def _content(token: Any) -> str | None:
    """A special token is written as text, or as an object with its text in `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _unigram(vocab: object) -> Iterator[tuple[int, object]]:
    """Unigram vocabularies are lists of [text, score]; a token's id is its place."""
    for index, entry in enumerate(vocab if isinstance(vocab, list) else ()):
        if isinstance(entry, list) and entry:
            yield index, entry[0]
