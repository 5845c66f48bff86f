"""`tools` and `tool_choice`, and messages with calls: errors name the field."""

import pytest

from enginesmith.errors import ParameterError
from enginesmith.serve.tools.messages import template_messages
from enginesmith.serve.tools.request import ToolRequest, tool_request


def _tool(name: object = "f", **function: object) -> dict:
    return {"type": "function", "function": {"name": name, **function}}


F = _tool()
CHOOSE_F = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "parameter", "message"),
    [
        ({}, None, None, "tools", "must be a list of tools, got {}"),
        ([_tool(f"f{at}") for at in range(129)], None, None, "tools", "must be at most 128, got 129"),
        (["f"], None, None, "tools[0]", "must be an object, got 'f'"),
        ([{"function": {}}], None, None, "tools[0].type", "must be 'function', got None"),
        ([F, {"type": "function"}], None, None, "tools[1].function", "must be an object with a name, got None"),
        ([_tool("a b")], None, None, "tools[0].function.name", "must be 1 to 64 letters, .* got 'a b'"),
        ([_tool(3)], None, None, "tools[0].function.name", "got 3"),
        ([F, F], None, None, "tools[1].function.name", r"'f' is the name of tools\[0\], too"),
        ([_tool(parameters=[])], None, None, "tools[0].function.parameters", "must be a JSON Schema"),
        ([_tool(description=1)], None, None, "tools[0].function.description", "must be a string, got 1"),
        ([_tool(strict="no")], None, None, "tools[0].function.strict", "must be true or false, got 'no'"),
        (None, "auto", None, "tool_choice", "is given without tools"),
        ([F], "any", None, "tool_choice", "must be none, auto, required, .* got 'any'"),
        ([F], {"type": "function"}, None, "tool_choice.function.name", "must be a string, got None"),
        ([F], {"type": "function", "function": {"name": "g"}}, None, "tool_choice.function.name", "got 'g'"),
        ([F], None, 1, "parallel_tool_calls", "must be true or false, got 1"),
    ],
)
def test_what_is_refused(tools: object, choice: object, parallel: object, parameter: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as error:
        tool_request(tools, choice, parallel)
    assert error.value.parameter == parameter


def test_what_is_asked_for() -> None:
    assert tool_request(None, None, None) == ToolRequest()
    assert tool_request([], "none", True) == ToolRequest()
    assert tool_request([F], "none", None) == ToolRequest()
    auto = tool_request([F], None, None)
    assert (auto.choice, auto.forced, auto.parallel, auto.tools) == ("auto", False, True, (F,))
    required = tool_request([F, _tool("g")], "required", False)
    assert (required.forced, required.parallel, [f["name"] for f in required.functions]) == (True, False, ["f", "g"])
    named = tool_request([F, _tool("g")], CHOOSE_F, None)
    assert (named.forced, named.parallel, [f["name"] for f in named.functions]) == (True, False, ["f"])
    assert tool_request([_tool("none")], {"type": "function", "function": {"name": "none"}}, None).forced


def test_messages_for_a_template() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call, call | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "3"},
        {"role": "tool", "tool_call_id": "c9", "content": "4"},
    ]
    converted = template_messages(messages)
    assert converted[0] == messages[0]
    assert converted[1]["content"] == ""  # which templates add to a string
    assert converted[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": [1]}}
    assert converted[2] == messages[2] | {"name": "f"}
    assert converted[3] == messages[3]
    assert call["function"]["arguments"] == '{"a": [1]}'


@pytest.mark.parametrize(
    ("calls", "parameter"),
    [
        ("f", "messages[0].tool_calls"),
        ([3], "messages[0].tool_calls[0].function"),
        ([{"function": {"name": 1}}], "messages[0].tool_calls[0].function"),
        ([{"function": {"name": "f", "arguments": "{"}}], "messages[0].tool_calls[0].function.arguments"),
        ([{"function": {"name": "f", "arguments": "[1]"}}], "messages[0].tool_calls[0].function.arguments"),
    ],
)
def test_messages_that_are_refused(calls: object, parameter: str) -> None:
    with pytest.raises(ParameterError) as error:
        template_messages([{"role": "assistant", "tool_calls": calls}])
    assert error.value.parameter == parameter
