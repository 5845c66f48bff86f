"""LangChain's OpenAI classes, unchanged. The model is random: what it must say is forced by forms and calls."""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any, Literal

import pytest
from http_api import Server
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

MESSAGES = [SystemMessage("Be brief."), HumanMessage("hello")]


class Answer(BaseModel):
    """A judgement."""

    good: bool
    colour: Literal["red", "green"]


@tool
def weather(city: Literal["Oslo", "Bergen"], celsius: bool) -> str:
    """The weather of a city."""
    return f"{city}: {celsius}"


@pytest.fixture(scope="module")
def tools_server(start_server: Callable[..., Any]) -> Iterator[Server]:
    """A server that takes tools, which the tiny model's template does not teach."""
    with start_server("--tool-parser", "llama3") as server:
        yield server


def _chat(server: Server, **more: Any) -> ChatOpenAI:
    options: dict[str, Any] = {"model": "tiny-llama", "api_key": "none", "temperature": 0, "max_tokens": 24}
    return ChatOpenAI(base_url=f"{server.url}/v1", **(options | more))


def _streamed(model: Any) -> Any:
    """The pieces of a stream, added up."""
    return reduce(add, model.stream(MESSAGES))


def test_invoke_stream_and_batch_agree(tools_server: Server) -> None:
    chat = _chat(tools_server, stream_usage=True)
    whole = chat.invoke(MESSAGES)
    assert whole.content
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 24
    assert whole.response_metadata["finish_reason"] == "length"
    added = _streamed(chat)
    assert added.content == whole.content
    assert {name: added.usage_metadata[name] for name in ("input_tokens", "output_tokens")} == {
        name: whole.usage_metadata[name] for name in ("input_tokens", "output_tokens")
    }
    assert [answer.content for answer in chat.batch([MESSAGES] * 3)] == [whole.content] * 3
    with_logprobs = _chat(tools_server, logprobs=True, top_logprobs=2).invoke(MESSAGES)
    assert len(with_logprobs.response_metadata["logprobs"]["content"]) == 24


def test_tools_are_bound_called_and_answered(tools_server: Server) -> None:
    chat = _chat(tools_server, max_tokens=200).bind_tools([weather], tool_choice="weather", strict=True)
    said = chat.invoke(MESSAGES)
    (call,) = said.tool_calls
    assert call["name"] == "weather"
    assert call["args"].keys() == {"city", "celsius"}
    assert weather.invoke(call["args"]).partition(":")[0] in ("Oslo", "Bergen")
    added = _streamed(chat)
    assert [call["args"] for call in added.tool_calls] == [call["args"]]
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert _chat(tools_server).invoke([*MESSAGES, said, result]).content


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(tools_server: Server, method: Literal["json_schema", "function_calling"]) -> None:
    chat = _chat(tools_server, max_tokens=200)
    answer = chat.with_structured_output(Answer, method=method).invoke(MESSAGES)
    assert isinstance(answer, Answer)


def test_completions(tools_server: Server) -> None:
    model = OpenAI(
        base_url=f"{tools_server.url}/v1",
        api_key="none",  # type: ignore[arg-type]
        model="tiny-llama",
        temperature=0,
        max_tokens=12,
    )
    whole = model.invoke("abc")
    assert whole
    assert "".join(model.stream("abc")) == whole
