"""Reasoning is told apart from the answer, cut anywhere, with calls after it."""

from functools import partial

import pytest
from answers import taken_apart, taken_apart_in_pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.serve.answer import AnswerFormat, AnswerParser
from enginesmith.serve.tools.request import ToolRequest, tool_request

TOOLS = tool_request([{"type": "function", "function": {"name": "add"}}], None, None)
NO_TOOLS = tool_request(None, None, None)
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
PLAIN, OPENED, CLOSED = "<|assistant|>\n", "<|assistant|>\n<think>\n", "<|assistant|>\n<think>\n\n</think>\n\n"

# prompt, text, content, reasoning, calls
CASES = [
    (PLAIN, "<think>\nLet me see.\n</think>\n\nYes.", "Yes.", "Let me see.\n", 0),
    (PLAIN, "\n <think>Hm</think>Yes. ", "Yes. ", "Hm", 0),
    (PLAIN, " Yes, <think> is a tag.", " Yes, <think> is a tag.", "", 0),
    (PLAIN, "<think></think>Yes.", "Yes.", "", 0),
    (PLAIN, "<think>\n\n</think>", "", "", 0),
    (PLAIN, "<think>cut </thin", "", "cut </thin", 0),
    (PLAIN, "<thin", "<thin", "", 0),
    (PLAIN, "", "", "", 0),
    (PLAIN, f"<think>I call {CALL}?</think>\n\n{CALL}", "", f"I call {CALL}?", 1),
    (OPENED, "Hm.</think>\n\nYes.", "Yes.", "Hm.", 0),
    (OPENED, "Hm. <think> a < b", "", "Hm. <think> a < b", 0),
    (OPENED, f"Hm.</think>{CALL}{CALL}", "", "Hm.", 2),
    (CLOSED, "Yes.</think>", "Yes.</think>", "", 0),
]


@pytest.mark.parametrize(("prompt", "text", "content", "reasoning", "calls"), CASES)
def test_whole_and_in_pieces(prompt: str, text: str, content: str, reasoning: str, calls: int) -> None:
    new = partial(AnswerFormat("hermes", "think").parser, TOOLS, prompt)
    found = taken_apart(new, text)
    assert (found[0], found[1], len(found[2])) == (content, reasoning, calls)
    for seed in range(9 if text else 0):
        assert taken_apart_in_pieces(new, text, seed) == found


@settings(max_examples=150, deadline=None)
@given(
    prompt=st.sampled_from([PLAIN, OPENED, CLOSED]),
    tools=st.sampled_from([TOOLS, NO_TOOLS]),
    fragments=st.lists(
        st.sampled_from(["<think>", "</think>", "<", "/think>", " ", "\n", "a", CALL, "<tool_call>"]),
        min_size=1,
        max_size=9,
    ),
    seed=st.integers(0, 99),
)
def test_any_split_gives_the_same(prompt: str, tools: ToolRequest, fragments: list[str], seed: int) -> None:
    new = partial(AnswerFormat("hermes", "think").parser, tools, prompt)
    assert taken_apart_in_pieces(new, "".join(fragments), seed) == taken_apart(new, "".join(fragments))


def test_without_either_the_text_is_the_content() -> None:
    text = f"<think>a</think> {CALL} \n"
    assert taken_apart(lambda: AnswerParser(None, None), text) == (text, "", [])
