"""Answers held to a form, through the `openai` client: a random model's noise is valid then, too."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import httpx2  # which the client is made with
import pytest
from http_api import Api
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

MESSAGES: Any = [{"role": "user", "content": "who?"}]
PATH = "/v1/chat/completions"
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def _tool(name: str, parameters: dict[str, Any] | None) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [_tool("add", ADD), _tool("now", None)]


class Pet(BaseModel):
    """Bounded, so that every answer ends."""

    kind: Literal["cat", "dog"]
    name: str = Field(max_length=4)
    age: int = Field(ge=0, le=30)
    tags: list[Literal["a", "b"]] = Field(max_length=2)


class Person(BaseModel):
    """With a part of its own, which a schema refers to."""

    name: str = Field(max_length=6)
    pet: Pet | None


@pytest.fixture
def ask(api: Api) -> Callable[[Callable[[AsyncOpenAI], Coroutine[Any, Any, Any]]], Any]:
    """ask(lambda client: client...): what a call of the client gives."""
    return lambda call: _asked(api, call)


def _asked(api: Api, call: Callable[[AsyncOpenAI], Coroutine[Any, Any, Any]]) -> Any:
    transport = httpx2.ASGITransport(api.app)

    async def ask() -> Any:
        async with httpx2.AsyncClient(transport=transport) as http_client:
            return await call(AsyncOpenAI(base_url="http://server/v1", api_key="none", http_client=http_client))

    return api.run(ask())


def test_a_pydantic_model_is_parsed(api: Api, ask: Callable[..., Any]) -> None:
    for seed in range(3):
        chat = ask(
            lambda client, seed=seed: client.chat.completions.parse(
                model=api.llm.manifest.model.name, messages=MESSAGES, response_format=Person, max_tokens=300, seed=seed
            )
        )
        (choice,) = chat.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Person)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"regex": r"[a-c]{2,5}\d"}, r"[a-c]{2,5}\d"),
        ({"grammar": 'root ::= "x" | "(" root ")"'}, r"\(*x\)*"),
        ({"json": {"enum": ["one", 2]}}, '"one"|2'),
    ],
)
def test_other_forms(api: Api, ask: Callable[..., Any], form: dict[str, Any], pattern: str) -> None:
    options: Any = {"model": api.llm.manifest.model.name, "extra_body": {"structured_outputs": form}, "n": 3, "seed": 5}
    chat = ask(lambda client: client.chat.completions.create(messages=MESSAGES, max_tokens=60, **options))
    text = ask(lambda client: client.completions.create(prompt="abc", max_tokens=60, **options))
    for answer in [choice.message.content for choice in chat.choices] + [choice.text for choice in text.choices]:
        assert re.fullmatch(pattern, answer)


def test_an_object_of_any_form(api: Api) -> None:
    body = {"messages": MESSAGES, "response_format": {"type": "json_object"}, "max_tokens": 40, "logprobs": True}
    choices = [api.post(PATH, body | {"seed": seed}).json()["choices"][0] for seed in range(5)]
    assert all(choice["message"]["content"].startswith("{") for choice in choices)
    for choice in choices:
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize("form", ["llama3", "mistral", "pythonic"])
def test_a_call_that_is_required_is_one(make_api: Callable[..., Api], form: str) -> None:
    """Without Hermes' form, whose line breaks this model's vocabulary cannot spell."""
    api = make_api(tool_parser=form)
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 200, "parallel_tool_calls": False, "seed": 3}
    (choice,) = api.post(PATH, body | {"tool_choice": "required"}).json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert call["function"]["name"] in ("add", "now")
    named = {"type": "function", "function": {"name": "add"}}
    events = api.stream(PATH, body | {"tool_choice": named})
    pieces = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert pieces[0]["function"]["name"] == "add"
    assert len(pieces) > 1  # the name, then arguments; steps that nobody awaited come as one
    arguments = json.loads("".join(piece["function"]["arguments"] for piece in pieces))
    assert set(arguments) == {"a", "b"}


def test_calls_are_streamed_to_the_client(make_api: Callable[..., Api]) -> None:
    api = make_api(tool_parser="llama3")

    async def accumulated(client: AsyncOpenAI) -> Any:
        options: Any = {"model": api.llm.manifest.model.name, "seed": 1, "max_tokens": 200}
        stream = client.chat.completions.stream(messages=MESSAGES, tools=TOOLS, tool_choice="required", **options)
        async with stream as events:
            return await events.get_final_completion()

    (choice,) = _asked(api, accumulated).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert isinstance(json.loads(call.function.arguments), dict)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"choice": ["a"]}, "ignore_eos": True}, "ignore_eos"),
        ({"structured_outputs": {"choice": ["a"]}, "min_tokens": 3}, "min_tokens"),
        ({"tool_choice": "required", "tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required", "tools": [_tool("f", {"not": {}})]}, "tools"),
    ],
)
def test_errors_name_the_parameter(make_api: Callable[..., Api], fields: dict[str, Any], param: str) -> None:
    answer = make_api(tool_parser="llama3").post(PATH, {"messages": MESSAGES, "max_tokens": 5} | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_other_chats_do_not_wait_for_forms_that_compile(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: they take no thread of those that chats need."""
    go_on = threading.Event()
    monkeypatch.setattr(api.llm, "compile_form", lambda form: go_on.wait(20))
    plain = {"messages": MESSAGES, "max_tokens": 1}
    held = plain | {"structured_outputs": {"regex": "a"}}

    async def race() -> tuple[int, list[int]]:
        waiting = [asyncio.create_task(api.client.post(PATH, json=held)) for _ in range(40)]
        await asyncio.sleep(0.1)
        try:
            answer = await asyncio.wait_for(api.client.post(PATH, json=plain), 10)
            assert not any(task.done() for task in waiting)
        finally:
            go_on.set()
        return answer.status_code, [answer.status_code for answer in await asyncio.gather(*waiting)]

    assert api.run(race()) == (200, [200] * 40)


def test_a_client_that_hangs_up_waits_for_no_form(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the form compiled then, if that has not begun."""
    go_on, begun = threading.Event(), []
    monkeypatch.setattr(api.llm, "compile_form", lambda form: (begun.append(form), go_on.wait(20)))
    held = {"messages": MESSAGES, "max_tokens": 1, "structured_outputs": {"regex": "a"}}

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "http_version": "1.1"}
    scope["headers"] = [(b"content-type", b"application/json")]
    received = [{"type": "http.disconnect"}, {"type": "http.request", "body": json.dumps(held).encode()}]
    statuses: list[int] = []

    async def receive() -> Any:
        return received.pop() if len(received) > 1 else received[0]

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    try:
        api.run(asyncio.wait_for(api.app(scope, receive, send), 5))
    finally:
        go_on.set()
    assert statuses[0] == 499
    assert len(begun) <= 1


def test_options_that_ban_every_token_are_the_requests_fault(api: Api) -> None:
    (token,) = api.llm.tokenizer.encode("z")
    asked = {"prompt": "abc", "structured_outputs": {"regex": "z"}, "logit_bias": {str(token): float("-inf")}}
    for more in ({}, {"n": 3}, {"stream": True}):
        body = json.dumps(asked | more).encode()  # with an infinity, as Python's JSON has it
        answer = api.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "structured_outputs")
        assert "leaves no token to draw next, together with logit_bias" in error["message"]
