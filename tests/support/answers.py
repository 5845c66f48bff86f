"""Answers taken apart in tests: whole, and cut into pieces anywhere."""

import random
from collections.abc import Callable

from enginesmith.serve.answer import AnswerParser, Message, whole_answer

Calls = list[tuple[str, str]]


def _plain(message: Message) -> tuple[str, str, Calls]:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.tool_calls]
    return message.content, message.reasoning_content, calls


def taken_apart(new_parser: Callable[[], AnswerParser], text: str) -> tuple[str, str, Calls]:
    """Content, reasoning and calls of a text."""
    return _plain(whole_answer(new_parser(), text))


def taken_apart_in_pieces(new_parser: Callable[[], AnswerParser], text: str, seed: int) -> tuple[str, str, Calls]:
    """The same from pieces of random sizes; each delta is one thing, and a call begins with its name."""
    parser, draw, message, at = new_parser(), random.Random(seed), Message(), 0
    most = draw.choice([1, 3, 20])
    while at < len(text):
        size = draw.randint(1, most)
        deltas = parser.push(text[at : at + size])
        at += size
        for delta in deltas + (parser.finish() if at >= len(text) else []):
            assert sum(map(bool, (delta.content, delta.reasoning_content, delta.tool_call))) == 1
            message.add(delta)
    return _plain(message)
