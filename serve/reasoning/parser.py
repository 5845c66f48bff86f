"""Reasoning, which some models write before their answer, between tags."""

import contextlib

from ...runtime.structured_output.params import ThinkingTags
from ..scanning import Scan, nonblank, text_until

REASONING_PARSERS = {
    "think": ("<think>", "</think>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "magistral": ("[THINK]", "[/THINK]"),
}
"""Tags by name."""
SPECIAL_TOKENS = frozenset({"magistral"})
"""Those whose tags are special tokens."""


def find_reasoning_parser(chat_template: str) -> str | None:
    """The name of the tags that a template speaks of; None where it speaks of none."""
    return next((name for name, (_, end) in REASONING_PARSERS.items() if end in chat_template), None)


def thinking_tags(name: str, prompt: str) -> ThinkingTags | None:
    """The tags of an answer to `prompt`; None where that has closed them, so that no reasoning comes."""
    start, end = REASONING_PARSERS[name]
    tail = prompt.rstrip()
    return None if tail.endswith(end) else ThinkingTags(start, end, opened=tail.endswith(start))


class ReasoningParser:
    """Takes an answer apart, however it is cut into pieces. One for each answer. Blanks behind a tag are left out."""

    def __init__(self, tags: ThinkingTags) -> None:
        self._tags = tags
        self._reasoning: list[str] = []
        self._answer: list[str] = []
        self._scan = self._read()
        next(self._scan)

    def push(self, text: str) -> tuple[str, str]:
        """What a piece adds to the reasoning, and to the answer."""
        for char in text:
            self._scan.send(char)
        return self._take()

    def finish(self) -> tuple[str, str]:
        """What is added when no more text comes."""
        with contextlib.suppress(StopIteration):
            while True:
                self._scan.send("")
        return self._take()

    def _take(self) -> tuple[str, str]:
        taken = "".join(self._reasoning), "".join(self._answer)
        self._reasoning.clear()
        self._answer.clear()
        return taken

    def _read(self) -> Scan[None]:
        if self._tags.opened or (yield from self._opens()):
            first = yield from nonblank()
            yield from text_until((self._tags.end,), self._reasoning.append, first)
            self._answer.append((yield from nonblank()))
        while char := (yield):
            self._answer.append(char)

    def _opens(self) -> Scan[bool]:
        """Whether the answer begins with reasoning."""
        blanks: list[str] = []
        while (char := (yield)).isspace():
            blanks.append(char)
        held = char
        while char and held != self._tags.start and self._tags.start.startswith(held):
            char = yield
            held += char
        if held == self._tags.start:
            return True
        self._answer += [*blanks, held]
        return False
