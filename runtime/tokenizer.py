"""An engine's tokenizer: the `tokenizers` library on its tokenizer.json, and what the other tokenizer files add."""

import re
import sys
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint.tokenizers_library import library_errors
from ..errors import EngineError, RequestError
from ..json_files import read_bytes, read_object

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

    from .chat_template import ChatTemplate

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """Encodes and decodes as the `tokenizers` library does with tokenizer.json, which is how the model was trained.

    Transformers does the same unless tokenizer_config.json names a class that it builds anew: its LlamaTokenizer drops
    the file's normalizer, so that a leading space, or what follows </s>, gets other ids than SentencePiece gives it.
    Raises EngineError for files that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = self._read_json("tokenizer_config.json")
        self._rust = self._load()
        self._pieces: dict[int, tuple[str, bytes | None]] = {}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; with what the tokenizer puts around a text (often a beginning-of-sequence token).

        A text that already begins with those tokens does not get them twice. Raises RequestError for a text that cannot
        be encoded.
        """
        token_ids = self._encode(text, add_special_tokens)
        if not add_special_tokens:
            return token_ids
        begins = len(self.beginning)
        return token_ids[begins:] if begins and token_ids[begins : 2 * begins] == self.beginning else token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence."""
        with library_errors(_decoding_failed):
            return self._rust.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def piece(self, token: int) -> tuple[str, bytes | None]:
        """What a token adds to a text before it; and its bytes, if by themselves they are not whole characters."""
        piece = self._pieces.get(token)
        if piece is None:
            text = self.continuation([token])
            data = _token_bytes(self._token(token)) if _REPLACEMENT in text else None
            piece = self._pieces[token] = (text, data)
        return piece

    def token_bytes(self, count: int) -> list[bytes]:
        """What each of the first `count` tokens adds to a text before it, in UTF-8; empty for ids without a token."""
        anchor, anchor_text = self._anchor
        with library_errors(_decoding_failed):
            texts = self._rust.decode_batch([[*anchor, token] for token in range(count)], skip_special_tokens=False)
        added = [text[len(anchor_text) :].encode() for text in texts]
        for token, text in enumerate(texts):
            if _REPLACEMENT in text:
                added[token] = _token_bytes(self._token(token)) or added[token]
        return added

    def continuation(self, token_ids: Sequence[int]) -> str:
        """Text that the tokens add to a text before them, special tokens included."""
        anchor, anchor_text = self._anchor
        return self.decode([*anchor, *token_ids], skip_special_tokens=False)[len(anchor_text) :]

    def decode_token(self, token: int) -> str:
        """Text of one token by itself, special or not."""
        return self.decode([token], skip_special_tokens=False)

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token as the vocabulary writes it, and so the most that one stands for."""
        return max(map(len, self._rust.get_vocab(with_added_tokens=True)), default=0)

    @cached_property
    def beginning(self) -> list[int]:
        """The special tokens that it puts before every text, such as Gemma's <bos>."""
        plain, whole = self._encode("a", False), self._encode("a", True)
        at = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
        return whole[:at]

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the tokens that `skip_special_tokens` leaves out."""
        added = self._rust.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        """Texts of the named special tokens (bos_token, eos_token, ...), as chat templates see them."""
        named = self._read_json("special_tokens_map.json") | self._config
        texts = {name: named.get(name) for name in _SPECIAL_NAMES}
        texts = {name: text.get("content") if isinstance(text, dict) else text for name, text in texts.items()}
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        """The model's own chat templates, or None. Raises ChatTemplateError where they cannot be read."""
        from ..checkpoint.chat_templates import find_chat_templates
        from .chat_template import ChatTemplate

        templates = find_chat_templates(self._folder)
        return ChatTemplate(templates, self.special_tokens) if templates else None

    @cached_property
    def _anchor(self) -> tuple[list[int], str]:
        """A token of plain text that shows what follows it unchanged, and its text."""
        candidates = [self._rust.token_to_id(text) for text in ("a", "▁a", "A", "▁the", "the", "0", ".")]
        for token in [token for token in candidates if token is not None]:
            text = self.decode_token(token)
            if text and _REPLACEMENT not in text and self.decode([token, token]).startswith(text):
                return [token], text
        return [], ""

    def _load(self) -> "RustTokenizer":
        from tokenizers import Tokenizer as RustTokenizer

        path = self._folder / "tokenizer.json"
        text = read_bytes(path, EngineError)  # not by its path, which need not be UTF-8
        with library_errors(lambda error: EngineError(f"{path} cannot be read: {error}")):
            tokenizer = RustTokenizer.from_buffer(text)
            tokenizer.no_truncation()
            tokenizer.no_padding()
        return tokenizer

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        with library_errors(lambda error: _unencodable(text, error)):
            return self._rust.encode(text, add_special_tokens=add_special_tokens).ids

    def _token(self, token: int) -> str:
        """A token as the vocabulary writes it."""
        return self._rust.id_to_token(token) or ""

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        return read_object(path, EngineError) if path.exists() else {}


class NoTokenizer(Tokenizer):
    """For an engine without a tokenizer: prompts are token ids, and outputs have no text."""

    def __init__(self) -> None:
        pass

    @cached_property
    def longest_token(self) -> int:
        return sys.maxsize

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset()

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        return {}

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        return None

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        raise RequestError("this engine has no tokenizer, its checkpoint had none: give prompts as token ids")

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return ""

    def decode_token(self, token: int) -> str:
        return ""

    def piece(self, token: int) -> tuple[str, bytes | None]:
        return "", None


def _unencodable(text: str, error: str) -> RequestError:
    place = next((at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
    if place is None:
        return RequestError(f"this model's tokenizer fails on the prompt: {error}")
    return RequestError(f"prompt is not valid Unicode text: a lone surrogate at character {place}")


def _decoding_failed(error: str) -> EngineError:
    return EngineError(f"this model's tokenizer fails on tokens that the model wrote: {error}")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of an engine, or one that only refuses text where the engine has none."""
    return Tokenizer(folder) if (folder / "tokenizer.json").is_file() else NoTokenizer()


def _token_bytes(token: str) -> bytes | None:
    """The bytes that a token of a byte-level or byte-fallback vocabulary stands for; None if it is none of those."""
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", token):
        return bytes([int(token[3:5], 16)])
    byte_of = _byte_alphabet()
    return bytes(byte_of[character] for character in token) if all(c in byte_of for c in token) else None


@cache
def _byte_alphabet() -> dict[str, int]:
    """How byte-level vocabularies write bytes, after GPT-2: printable Latin-1 as itself, the others from U+0100 on."""
    itself = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + index): byte for index, byte in enumerate(others)}
