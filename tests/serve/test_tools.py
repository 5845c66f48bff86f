"""Calls of tools and reasoning in chats: an engine that says what it is told to, behind the real application."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from http_api import Api

from enginesmith.runtime.async_llm import AsyncLLM
from enginesmith.runtime.outputs import CompletionOutput, FinishReason, Metrics, RequestOutput
from enginesmith.runtime.sampling_params import SamplingParams

PATH = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALLS = (
    "<think>Two cities.</think>Let me see.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>'
)


class Scripted:
    """An engine whose every answer is one text, a few characters a step."""

    def __init__(self, llm: AsyncLLM, text: str) -> None:
        self._llm, self._text = llm, text
        self.prompts: list[str] = []
        self.params: list[SamplingParams] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def generate(self, prompt: str, params: SamplingParams, **_: Any) -> AsyncIterator[RequestOutput]:
        """The text in pieces of three characters."""
        self.prompts.append(prompt)
        self.params.append(params)

        async def pieces() -> AsyncIterator[RequestOutput]:
            ends = range(3, len(self._text) + 3, 3)
            for end in ends:
                last = end == ends[-1]
                output = CompletionOutput(self._text[end - 3 : end], [5], FinishReason.STOP if last else None)
                yield RequestOutput("x", prompt, [1, 2], [output], last, Metrics(0.0))

        return pieces()


@pytest.fixture
def scripted(llm: AsyncLLM, runner: asyncio.Runner) -> Callable[[str], tuple[Api, Scripted]]:
    """The application on an engine that says this."""

    def make(text: str) -> tuple[Api, Scripted]:
        engine: Any = Scripted(llm, text)
        return Api(engine, runner, tool_parser="hermes", reasoning_parser="think"), engine

    return make


def _body(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Oslo?"}], "tools": [TOOL]} | more


def _assert_calls(calls: list[dict[str, Any]]) -> None:
    assert [call["type"] for call in calls] == ["function"] * 2
    assert len({call["id"] for call in calls}) == 2
    assert [call["function"]["name"] for call in calls] == ["weather"] * 2
    arguments = [call["function"]["arguments"].replace(" ", "") for call in calls]
    assert arguments == ['{"city":"Oslo"}', '{"city":"Bergen"}']


def test_calls_are_taken_out_of_the_text(scripted: Callable[[str], tuple[Api, Scripted]]) -> None:
    api, _ = scripted(CALLS)
    (choice,) = api.post(PATH, _body()).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert choice["message"]["reasoning_content"] == "Two cities."
    _assert_calls(choice["message"]["tool_calls"])


def test_streamed_calls_add_up(scripted: Callable[[str], tuple[Api, Scripted]]) -> None:
    api, _ = scripted(CALLS)
    choices = [event["choices"][0] for event in api.stream(PATH, _body())]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["tool_calls"]
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me see."
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Two cities."
    calls: list[dict[str, Any]] = []
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls", ())):
        if piece["index"] == len(calls):
            calls.append(piece)
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    _assert_calls(calls)


def test_without_tools_the_text_is_left_as_it_is(scripted: Callable[[str], tuple[Api, Scripted]]) -> None:
    api, _ = scripted("<tool_call> is a word")
    for body in (_body(tools=None), _body(tool_choice="none")):
        (choice,) = api.post(PATH, body).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": "<tool_call> is a word"}
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice.function.name"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": 3}, "parallel_tool_calls"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}}, "response_format"),
        ({"structured_outputs": {"colour": 1}}, "structured_outputs"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_errors_name_the_parameter(
    scripted: Callable[[str], tuple[Api, Scripted]], fields: dict[str, Any], param: str
) -> None:
    api, _ = scripted("x")
    answer = api.post(PATH, _body(**fields))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_a_model_whose_calls_are_not_known_refuses_tools(api: Api) -> None:
    answer = api.post(PATH, _body())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
    assert "--tool-parser" in answer.json()["error"]["message"]
