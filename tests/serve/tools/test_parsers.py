"""Each form of calls: what models write, cut anywhere, and what only looks like a call."""

import json
from functools import partial

import pytest
from answers import taken_apart, taken_apart_in_pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.serve.answer import AnswerParser
from enginesmith.serve.tools.mistral import MistralParser
from enginesmith.serve.tools.registry import TOOL_PARSERS

NAMES = ["get_weather", "add"]
ARGUMENTS = {"city": 'São "Paulo" }]) </tool_call>', "days": [1, {"a": None}], "exact": True}
WRITTEN = json.dumps(ARGUMENTS, ensure_ascii=False)
PYTHONIC = "[get_weather(city=\"it's, \\\"x\\\" )]\", days=[1, {'a': None}], exact=True), add(a=-1.5, b='\\n'), add()]"
PYTHONIC_CALLS = [
    ("get_weather", {"city": 'it\'s, "x" )]', "days": [1, {"a": None}], "exact": True}),
    ("add", {"a": -1.5, "b": "\n"}),
    ("add", {}),
]
BOTH = [("get_weather", ARGUMENTS), ("add", {"a": 1})]

# form, text, content, calls
CASES = [
    ("hermes", "Hello <b>you</b>. ", "Hello <b>you</b>. ", []),
    ("hermes", f'<tool_call>\n{{"name": "get_weather", "arguments": {WRITTEN}}}\n</tool_call>', "", BOTH[:1]),
    (
        "hermes",
        f'I look.\n\n<tool_call>\n{{"arguments": {WRITTEN}, "name": "get_weather"}}\n</tool_call>\n'
        '<tool_call>{"name":"add","arguments":{"a": 1}}</tool_call>\n\nDone.',
        "I look.\n\nDone.",
        BOTH,
    ),
    ("hermes", '<tool_call>{"name": "add"}</tool_call>', "", [("add", {})]),
    ("hermes", '<tool_call>{"name": "add", "arguments": null}</tool_call>', "", [("add", {})]),
    ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("add", {"a": 1})]),
    ("hermes", '<tool_call>{"name": "other", "arguments": {}}', "", [("other", {})]),
    ("hermes", "<tool_call>hm</tool_call> <tool_ca", "<tool_call>hm</tool_call> <tool_ca", []),
    ("hermes", '<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
    ("hermes", '<tool_call>{"nam', '<tool_call>{"nam', []),
    ("hermes", '<tool_call>{"name": "add", "x": 1}', "", [("add", None)]),
    ("hermes", '<<tool_call>{"name": "add"}</tool_call>', "<", [("add", {})]),
    ("llama3", f'{{"name": "get_weather", "parameters": {WRITTEN}}}', "", BOTH[:1]),
    (
        "llama3",
        f'<|python_tag|>{{"name": "get_weather", "parameters": {WRITTEN}}}; '
        '{"name": "add", "parameters": {"a": 1}}',
        "",
        BOTH,
    ),
    ("llama3", 'I call <|python_tag|>{"type": "function", "name": "add"} now', "I call now", [("add", {})]),
    ("llama3", '{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}', []),
    ("llama3", '{"city": "Rome"}\n', '{"city": "Rome"}\n', []),
    ("llama3", '<|python_tag|>add.call(a="1")', '<|python_tag|>add.call(a="1")', []),
    ("llama3", "No {call} at all", "No {call} at all", []),
    ("mistral", f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {WRITTEN}}}]', "", BOTH[:1]),
    (
        "mistral",
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {WRITTEN}}}, {{"name": "add", "arguments": {{"a": 1}}}}]',
        "",
        BOTH,
    ),
    ("mistral", f'Hm. [TOOL_CALLS]get_weather[ARGS]{WRITTEN}[TOOL_CALLS]add{{"a": 1}}', "Hm.", BOTH),
    ("mistral", '[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1}', "", [("add", {"a": 1})]),
    ("mistral", '[{"name": "add", "arguments": {"a": 1}}]', "", [("add", {"a": 1})]),
    ("mistral", '[{"name": "Ann", "arguments": {}}]', '[{"name": "Ann", "arguments": {}}]', []),
    ("mistral", "[1, 2] and [TOOL_CALLS] none", "[1, 2] and [TOOL_CALLS] none", []),
    ("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", []),
    ("mistral", "[TOOL_CALLS] [", "[TOOL_CALLS] [", []),
    ("pythonic", PYTHONIC, "", PYTHONIC_CALLS),
    ("pythonic", f"<|python_start|>{PYTHONIC}<|python_end|>", "", PYTHONIC_CALLS),
    ("pythonic", "Hm. <|tool_call_start|>[add(a=true)]<|tool_call_end|>", "Hm.", [("add", {"a": True})]),
    ("pythonic", "[1, 2]", "[1, 2]", []),
    ("pythonic", "[other(a=1)]", "[other(a=1)]", []),
    ("pythonic", "[add(a=b)]", "[add(a=b)]", []),
    ("pythonic", "[add(a=__import__('os'))]", "[add(a=__import__('os'))]", []),
    ("pythonic", f"[add(a={'(' * 5000}", f"[add(a={'(' * 5000}", []),
    ("pythonic", "[add(a=b'x')]", "[add(a=b'x')]", []),
]
IDS = [f"{form}-{text[:40]}" for form, text, _, _ in CASES]


def _new(form: str) -> AnswerParser:
    return AnswerParser(None, TOOL_PARSERS[form](NAMES))


@pytest.mark.parametrize(("form", "text", "content", "calls"), CASES, ids=IDS)
def test_whole_and_in_pieces(form: str, text: str, content: str, calls: list) -> None:
    found = taken_apart(partial(_new, form), text)
    assert found[:2] == (content, "")
    assert [name for name, _ in found[2]] == [name for name, _ in calls]
    for (_, written), (_, arguments) in zip(found[2], calls, strict=True):
        assert arguments is None or json.loads(written) == arguments
    for seed in range(9):
        assert taken_apart_in_pieces(partial(_new, form), text, seed) == found


_FRAGMENTS = st.sampled_from([
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|python_start|>", "[", "]", "{", "}",
    "(", ")", '"', "'", "\\", ",", ":", ";", "=", "\n", " ", "add", "get_weather", '"name"', '"arguments"',
    '{"name": "add", ', '"arguments": {"a": 1}}', '"parameters": ', "[add(", "a=1", "1", "-", "None", "é",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(sorted(TOOL_PARSERS)), fragments=st.lists(_FRAGMENTS, max_size=14), seed=st.integers(0, 99))
def test_any_split_of_any_text_gives_the_same(form: str, fragments: list[str], seed: int) -> None:
    text = "".join(fragments)
    assert taken_apart_in_pieces(partial(_new, form), text, seed) == (
        taken_apart(partial(_new, form), text) if text else ("", "", [])
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_CALLS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(["a", "b_c"]), _JSON)), min_size=1, max_size=3
)


def _written(form: str, calls: list, draw: st.DataObject) -> str:
    """Calls as a model of that form writes them."""
    indent = draw.draw(st.sampled_from([None, 1]))
    objects = [json.dumps({"name": name, "arguments": arguments}, indent=indent) for name, arguments in calls]
    if form == "hermes":
        return "\n".join(f"<tool_call>\n{written}\n</tool_call>" for written in objects)
    if form == "llama3":
        return "; ".join(objects)
    if form == "mistral":
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    written = [f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})" for name, values in calls]
    return f"[{', '.join(written)}]"


@settings(max_examples=200, deadline=None)
@given(form=st.sampled_from(sorted(TOOL_PARSERS)), calls=_CALLS, draw=st.data())
def test_calls_come_back_as_they_were_written(form: str, calls: list, draw: st.DataObject) -> None:
    content, _, found = taken_apart_in_pieces(
        partial(_new, form), _written(form, calls, draw), draw.draw(st.integers(0, 99))
    )
    assert content == ""
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls


def test_arguments_are_streamed_as_they_come() -> None:
    parser = _new("hermes")
    assert parser.push('<tool_call>{"name": "add", "argum') != []
    told = []
    for piece in ('ents": {"a"', ": 1, ", '"b": [2', "]}", "}</tool_call>"):
        told.append("".join(delta.tool_call.arguments for delta in parser.push(piece) if delta.tool_call))
    assert told == ['{"a"', ": 1, ", '"b": [2', "]}", ""]
    assert parser.has_tool_calls


def test_ids() -> None:
    ids = {MistralParser.new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(identity) == 9 and identity.isalnum() for identity in ids)
