"""/v1/chat/completions beside the engine's own answers."""

from typing import Any

import pytest
from http_api import Api

PATH = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
GREEDY = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12}


def _expected(api: Api, prompt: str, **params: Any) -> str:
    return api.engine_answer(prompt, temperature=0, **{"max_tokens": 12} | params).outputs[0].text


def test_an_answer_has_openais_form(api: Api) -> None:
    answer = api.post(PATH, GREEDY).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": _expected(api, "user: hello\na: ")}
    assert choice["finish_reason"] in ("stop", "length")
    assert answer["usage"]["prompt_tokens"] == len("user: hello\na: ")


def test_a_stream_adds_up_to_the_whole(api: Api) -> None:
    whole = api.post(PATH, GREEDY | {"logprobs": True, "top_logprobs": 2}).json()["choices"][0]
    events = api.stream(PATH, GREEDY | {"logprobs": True, "top_logprobs": 2})
    choices = [event["choices"][0] for event in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in choices) == whole["message"]["content"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [whole["finish_reason"]]
    content = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    assert content == whole["logprobs"]["content"]
    assert all("usage" not in event for event in events)


def test_log_probabilities_come_with_bytes(api: Api) -> None:
    answer = api.post(PATH, GREEDY | {"logprobs": True, "top_logprobs": 3}).json()["choices"][0]
    expected = api.engine_answer("user: hello\na: ", temperature=0, max_tokens=12, logprobs=3).outputs[0]
    for entry, token, found in zip(
        answer["logprobs"]["content"], expected.token_ids, expected.logprobs or (), strict=True
    ):
        assert (entry["token"], entry["logprob"]) == (found[token].decoded_token, found[token].logprob)
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] >= entry["top_logprobs"][1]["logprob"]
    answer = api.post(PATH, GREEDY | {"logprobs": True}).json()["choices"][0]
    assert all(entry["top_logprobs"] == [] for entry in answer["logprobs"]["content"])


def test_the_templates_options(api: Api) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "well"}]
    body = GREEDY | {"messages": messages}
    for options, prompt in (
        ({}, "user: hello\nassistant: well\na: "),
        ({"add_generation_prompt": False}, "user: hello\nassistant: well\n"),
        ({"add_generation_prompt": False, "continue_final_message": True}, "user: hello\nassistant: well"),
        ({"chat_template_kwargs": {"unused": 1}}, "user: hello\nassistant: well\na: "),
    ):
        answer = api.post(PATH, body | options).json()
        assert answer["choices"][0]["message"]["content"] == _expected(api, prompt)


def test_several_answers(api: Api) -> None:
    body = {"messages": MESSAGES, "n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 8}
    choices = api.post(PATH, body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    texts = dict.fromkeys(range(3), "")
    for event in api.stream(PATH, body):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {choice["index"]: choice["message"]["content"] for choice in choices}


def test_content_may_be_parts(api: Api) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    answer = api.post(PATH, GREEDY | {"messages": [{"role": "user", "content": parts}]}).json()
    assert answer["choices"][0]["message"]["content"] == _expected(api, "user: hel\nlo\na: ")


def test_an_answer_may_have_what_the_prompt_leaves(api: Api) -> None:
    bias = {str(api.llm.tokenizer.encode("q")[0]): 100}
    answer = api.post(PATH, {"messages": MESSAGES, "logit_bias": bias}).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == api.llm.manifest.limits.max_seq_len
    for name in ("max_tokens", "max_completion_tokens"):
        assert api.post(PATH, {"messages": MESSAGES, name: 3}).json()["usage"]["completion_tokens"] <= 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": "x" * 500}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 10**6}, "messages"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"functions": [{}]}, "functions"),
        ({"audio": {}}, "audio"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_errors_name_the_parameter(api: Api, fields: dict[str, Any], param: str) -> None:
    answer = api.post(PATH, content=_json(GREEDY | fields), headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def _json(body: dict[str, Any]) -> bytes:
    import json

    return json.dumps(body).encode()  # httpx refuses lone surrogates, which JSON may hold
