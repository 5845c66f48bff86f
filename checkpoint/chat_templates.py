"""Where the chat templates of a tokenizer's folder are, a checkpoint's or an engine's."""

import re
from pathlib import Path

from ..errors import ChatTemplateError, CheckpointError, shown
from ..json_files import read_bytes
from ..units import shown_size
from .config import read_optional_json
from .files import exists
from .lfs_pointer import is_lfs_pointer, lfs_pointer_message

DEFAULT = "default"
DEFAULT_FILE = "chat_template.jinja"
OTHERS_FOLDER = "additional_chat_templates"
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"\w[\w.-]{0,59}")  # so that it names a file, also in characters of four bytes


def find_chat_templates(folder: Path) -> dict[str, str]:
    """Jinja texts by name, empty where there are none: those in files of their own, else in chat_template.json, else in
    tokenizer_config.json. A single one is named "default".

    Raises ChatTemplateError where they cannot be read, or are no templates.
    """
    files = template_files(folder)
    if files:
        return {_name(path): _text(path) for path in files}
    for name in ("chat_template.json", "tokenizer_config.json"):
        path = folder / name
        try:
            value = read_optional_json(path).get("chat_template")
        except CheckpointError as error:
            raise ChatTemplateError(f"{error}") from None
        if value is not None:
            return _named(value, path)
    return {}


def template_files(folder: Path) -> list[Path]:
    """The files that hold one template each, the default one first."""
    default = folder / DEFAULT_FILE
    return [*([default] if exists(default) else []), *sorted((folder / OTHERS_FOLDER).glob("*.jinja"))]


def save_chat_templates(templates: dict[str, str], output: Path) -> None:
    """Write them into `output`, each in a file of its own."""
    for name, text in templates.items():
        path = output / DEFAULT_FILE if name == DEFAULT else output / OTHERS_FOLDER / f"{name}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def _name(path: Path) -> str:
    return DEFAULT if path.name == DEFAULT_FILE else path.stem


def _text(path: Path) -> str:
    try:
        data = read_bytes(path, ChatTemplateError, max_bytes=_MAX_BYTES)
        if is_lfs_pointer(data):
            raise ChatTemplateError(lfs_pointer_message(path))
        return data.decode()
    except UnicodeDecodeError as error:
        raise ChatTemplateError(f"{path}: not text in UTF-8: {error.reason} at byte {error.start}") from None


def _named(value: object, path: Path) -> dict[str, str]:
    """Templates in JSON are one text, or several by name: a list of {name, template}, or an object."""
    entries: list[tuple[object, object]] = []
    if isinstance(value, str):
        entries = [(DEFAULT, value)]
    elif isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        entries = [(entry.get("name"), entry.get("template")) for entry in value]
    if not entries:
        raise ChatTemplateError(f"{path}: chat_template should be text, or texts by name; found {shown(value)}")
    return dict(_checked(name, text, path) for name, text in entries)


def _checked(name: object, text: object, path: Path) -> tuple[str, str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(text, str):
        raise ChatTemplateError(
            f"{path}: chat_template should hold names and texts; found {shown(name)}: {shown(text)}"
        )
    if (found := len(text.encode())) > _MAX_BYTES:
        raise ChatTemplateError(
            f"{path}: chat template {name} has {shown_size(found)}; the limit is {shown_size(_MAX_BYTES)}"
        )
    return name, text
