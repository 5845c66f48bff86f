"""Tokens to text, as they come, never splitting a character."""

import codecs

from .tokenizer import Tokenizer

_Utf8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of a growing sequence, piece by piece.

    Tokens read as they do in the middle of a text: a word keeps its leading space. Most are text by themselves; those
    that hold part of a character are bytes, and wait until it is whole. Bytes that are no UTF-8 become U+FFFD, one for
    each longest part that could have begun a character.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = _Utf8("replace")
        self._waits = False

    def push(self, token: int) -> str:
        """The text that is certain with one more token; empty while a character is incomplete."""
        if token in self._skipped:
            return ""
        text, data = self._tokenizer.piece(token)
        if data is None:
            return self.flush() + text if self._waits else text
        self._waits = True
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What stands for a character left incomplete, when no more of it comes."""
        self._waits = False
        return self._utf8.decode(b"", final=True)
