"""Tokens to text, as they come, never splitting a character."""

from .tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_TAIL = 3  # an unfinished UTF-8 character has at most three bytes, and a token at least one
_MOST_PENDING = 8


class Detokenizer:
    """The text of a growing sequence, piece by piece.

    Tokens are decoded after a fixed piece of plain text, the tokenizer's anchor, so that they read as they would in the
    middle of a text (a word keeps its leading space). Tokens whose text may end within a character wait for the next.
    Bytes that are no UTF-8 become U+FFFD. Each token costs one decoding of a handful of tokens at most.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """The text that is certain with one more token; often empty while a character is incomplete."""
        if token in self._skipped:
            return ""
        pending = self._pending
        pending.append(token)
        text = self._tokenizer.continuation(pending)
        if not text.endswith(_REPLACEMENT):
            pending.clear()
            return text
        return self._settle(text) if len(pending) > _LONGEST_TAIL else ""

    def flush(self) -> str:
        """The text of what still waits, when no more tokens come."""
        text = self._tokenizer.continuation(self._pending) if self._pending else ""
        self._pending.clear()
        return text

    def _settle(self, text: str) -> str:
        """Text of the waiting tokens that cannot belong to a character still incomplete."""
        for tail in range(_LONGEST_TAIL, -1, -1):
            cut = len(self._pending) - tail
            head_text = self._tokenizer.continuation(self._pending[:cut])
            tail_text = self._tokenizer.continuation(self._pending[cut:])
            if head_text + tail_text == text:
                del self._pending[:cut]
                return head_text
        return self.flush() if len(self._pending) > _MOST_PENDING else ""
