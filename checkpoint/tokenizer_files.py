"""A checkpoint's tokenizer: which files it is made of, its end-of-sequence token."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, shown
from .chat_templates import template_files
from .config import read_json, read_optional_json
from .files import check_readable, exists
from .sentencepiece_model import convert_sentencepiece, piece_id
from .tokenizers_library import library_errors

_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_SENTENCEPIECE = "tokenizer.model"
_SLOW = (_SENTENCEPIECE, "spiece.model", "vocab.json", "vocab.txt", "merges.txt", "sentencepiece.bpe.model")
_OTHERS = ("added_tokens.json", "chat_template.json", "generation_config.json")


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint brings any tokenizer; an engine without one takes and gives token ids."""
    return any(exists(folder / name) for name in ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"))


def tokenizer_files(folder: Path) -> list[Path]:
    """The tokenizer's files that an engine needs and that are present, tokenizer.json first."""
    return [*(path for name in _FILES if exists(path := folder / name)), *template_files(folder)]


def eos_token(folder: Path) -> str | None:
    """The tokenizer's own end-of-sequence token, as text."""
    return _content(read_optional_json(folder / "tokenizer_config.json").get("eos_token")) or _content(
        read_optional_json(folder / "special_tokens_map.json").get("eos_token")
    )


def token_id(folder: Path, token: str) -> int | None:
    """The id of a token: among tokenizer.json's added tokens, in its vocabulary, else in tokenizer.model."""
    path = folder / "tokenizer.json"
    if not exists(path):
        model = folder / _SENTENCEPIECE
        return piece_id(model, token) if exists(model) else None
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

    A tokenizer.json is taken as it is, whatever class tokenizer_config.json names. tokenizer.model alone is converted
    with the ids that SentencePiece gives. Of other slow tokenizers' files Transformers makes a tokenizer.json; code in
    the checkpoint is never run. Raises CheckpointError where there is no tokenizer, or it cannot be converted.
    """
    output.mkdir(parents=True, exist_ok=True)
    if exists(folder / "tokenizer.json"):
        for name in _FILES:
            if exists(folder / name):
                check_readable(folder / name)
                shutil.copyfile(folder / name, output / name)
    elif exists(folder / _SENTENCEPIECE):
        check_readable(folder / _SENTENCEPIECE)
        _convert_sentencepiece(folder, output)
    else:
        _convert_slow(folder, output)
    return tokenizer_files(output)


def copy_tokenizer(folder: Path, output: Path) -> None:
    """Copy all that a checkpoint has of a tokenizer, as it is, with its generation config, into `output`."""
    for name in (*_FILES, *_SLOW, *_OTHERS):
        if exists(folder / name):
            check_readable(folder / name)
            shutil.copyfile(folder / name, output / name)
    for path in template_files(folder):
        copy = output / path.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)


def _convert_sentencepiece(folder: Path, output: Path) -> None:
    settings = read_optional_json(folder / "special_tokens_map.json")
    settings |= {
        name: value
        for name, value in read_optional_json(folder / "tokenizer_config.json").items()
        if value is not None and name not in ("chat_template", "auto_map")
    }
    tokenizer, named = convert_sentencepiece(folder / _SENTENCEPIECE, settings, _added_tokens(folder, settings))
    tokenizer.save(str(output / "tokenizer.json"))
    text = json.dumps(named | settings, indent=2, ensure_ascii=False)
    (output / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _added_tokens(folder: Path, settings: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Tokens by id beside tokenizer.model: of the older added_tokens.json, and of tokenizer_config.json."""
    special = {_content(value) for name, value in settings.items() if name.endswith("_token")}
    older = read_optional_json(folder / "added_tokens.json")
    stated = settings.get("added_tokens_decoder")
    entries = [(index, {"content": text, "special": text in special}) for text, index in older.items()]
    entries += stated.items() if isinstance(stated, dict) else []
    found: dict[int, dict[str, Any]] = {}
    for index, token in entries:
        if not re.fullmatch("[0-9]{1,9}", str(index)) or not isinstance(token, dict) or _content(token) is None:
            raise CheckpointError(
                f"{folder}: added tokens (in added_tokens.json, and as added_tokens_decoder in tokenizer_config.json) "
                f"should have an id and a text, found {shown(index)}: {shown(token)}."
            )
        found[int(index)] = token
    return found


def _convert_slow(folder: Path, output: Path) -> None:
    found = [name for name in _SLOW if exists(folder / name)]
    if not found:
        raise CheckpointError(f"{folder}: no tokenizer: neither tokenizer.json nor any of {', '.join(_SLOW)} is there.")
    for name in found:
        check_readable(folder / name)
    names = ", ".join(found)
    with library_errors(lambda error: CheckpointError(f"{folder}: {names} could not be converted: {error}")):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        tokenizer.save_pretrained(str(output))
    if not (output / "tokenizer.json").exists():
        raise CheckpointError(f"{folder}: {names} has no fast form, and enginesmith needs tokenizer.json.")


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
