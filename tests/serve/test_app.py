"""What stands before the routes: keys, limits, methods, origins; and the small routes."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_api import Api

import enginesmith
from enginesmith.errors import EngineDeadError, ServeError
from enginesmith.runtime.async_llm import AsyncLLM
from enginesmith.serve.auth import ApiKeys, read_keys

PROMPT = {"prompt": "abc", "max_tokens": 2}
COMPLETIONS = "/v1/completions"
MakeApi = Callable[..., Api]


def _error(answer: Any) -> dict[str, Any]:
    return answer.json()["error"]


def test_the_model_is_listed(api: Api) -> None:
    (card,) = api.get("/v1/models").json()["data"]
    assert card["max_model_len"] == api.llm.manifest.limits.max_seq_len
    assert api.get(f"/v1/models/{card['id']}").json() == card
    assert api.post(COMPLETIONS, PROMPT | {"model": card["id"]}).status_code == 200


def test_another_model_is_not_found(api: Api, make_api: MakeApi) -> None:
    for answer in (api.get("/v1/models/gpt-9"), api.post(COMPLETIONS, PROMPT | {"model": "gpt-9"})):
        assert answer.status_code == 404
        assert (_error(answer)["param"], _error(answer)["code"]) == ("model", "model_not_found")
    named = make_api(served_model_name="org/mine")
    assert named.get("/v1/models/org/mine").json()["id"] == "org/mine"


def test_health_and_version(api: Api) -> None:
    assert api.get("/health").status_code == 200
    assert api.get("/version").json() == {"version": enginesmith.__version__}


def test_health_tells_of_an_engine_that_failed(llm: AsyncLLM, runner: asyncio.Runner) -> None:
    class Dead:
        refusal = EngineDeadError("the engine's thread ended")

        def __getattr__(self, name: str) -> Any:
            return getattr(llm, name)

        def generate(self, *_: Any, **__: Any) -> Any:
            raise self.refusal

    dead: Any = Dead()
    api = Api(dead, runner)
    assert (api.get("/health").status_code, api.post(COMPLETIONS, PROMPT).status_code) == (503, 503)
    assert _error(api.post(COMPLETIONS, PROMPT))["code"] == "engine_dead"


def test_tokens_there_and_back(api: Api) -> None:
    found = api.post("/tokenize", {"prompt": "abc", "return_token_strs": True}).json()
    assert found == {"count": 3, "max_model_len": 400, "tokens": [68, 69, 70], "token_strs": ["a", "b", "c"]}
    assert api.post("/detokenize", {"tokens": found["tokens"]}).json() == {"prompt": "abc"}
    chat = api.post("/tokenize", {"messages": [{"role": "user", "content": "hello"}]}).json()
    assert chat["tokens"] == api.llm.tokenizer.encode("user: hello\na: ")


def test_a_key_opens_every_route(make_api: MakeApi) -> None:
    api = make_api(keys=("secret-one", "secret-two"))
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "secret-one"},
        {"authorization": "Bearer"},
    ):
        for path in ("/v1/models", "/metrics", "/version", "/page/events", "/openapi.json", "/nowhere"):
            answer = api.get(path, headers=headers)
            assert (answer.status_code, _error(answer)["code"]) == (401, "invalid_api_key")
    assert api.post(COMPLETIONS, PROMPT).status_code == 401
    assert api.get("/health").status_code == 200
    for key in ("secret-one", "secret-two"):
        assert api.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n two \n")
    assert read_keys(str(path)) == ("one", "two")
    monkeypatch.setenv("ENGINESMITH_API_KEY", "three")
    assert read_keys(str(path)) == ("three", "one", "two")
    assert not ApiKeys(())
    path.write_text("\n")
    for bad in (path, tmp_path / "absent"):
        with pytest.raises(ServeError, match="--api-key-file"):
            read_keys(str(bad))


def test_a_body_may_not_be_too_long(make_api: MakeApi) -> None:
    api = make_api(max_body_size=2048)
    for content in (b"x" * 2049, json.dumps(PROMPT | {"user": "x" * 2048}).encode()):
        answer = api.post(COMPLETIONS, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert "--max-body-size" in _error(answer)["message"]

    async def pieces() -> Any:
        for _ in range(3):
            yield b" " * 1000

    answer = api.post(COMPLETIONS, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a"] * 3}, "n"),
        ({"stop": ["a", "b", "c"]}, "stop"),
        ({"stop_token_ids": [1, 2, 3]}, "stop_token_ids"),
        ({"logprobs": 3}, "logprobs"),
        ({"prompt_logprobs": 3}, "prompt_logprobs"),
    ],
)
def test_caps_of_the_server(make_api: MakeApi, fields: dict[str, Any], param: str) -> None:
    api = make_api(max_n=2, max_stop=2, max_logprobs=2)
    answer = api.post(COMPLETIONS, PROMPT | fields)
    assert answer.status_code == 400
    assert _error(answer)["param"] == param
    assert "on this server" in _error(answer)["message"]


def test_too_many_connections_are_sent_away(make_api: MakeApi) -> None:
    api = make_api(max_connections=4)
    api.connections = 5
    answer = api.post(COMPLETIONS, PROMPT)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert _error(answer)["code"] == "too_many_connections"
    assert api.get("/health").status_code == 200


def test_while_it_drains_no_request_is_taken(make_api: MakeApi) -> None:
    api = make_api()
    assert api.run(api.lifecycle.drain(1.0))
    for answer in (api.post(COMPLETIONS, PROMPT), api.get("/health")):
        assert (answer.status_code, _error(answer)["code"]) == (503, "draining")
    assert api.get("/metrics").status_code == 200


def test_a_request_ends_with_its_time(make_api: MakeApi) -> None:
    api = make_api(request_timeout=0.001)
    body = {"prompt": "abc", "max_tokens": 390, "ignore_eos": True}
    answer = api.post(COMPLETIONS, body)
    assert (answer.status_code, _error(answer)["code"]) == (504, "request_timeout")


def test_methods_and_paths(api: Api) -> None:
    assert _error(api.get("/nowhere"))["message"] == "there is no '/nowhere' here"
    assert api.get(COMPLETIONS).status_code == 405
    assert _error(api.get(COMPLETIONS))["message"].endswith("does not take GET")


def test_a_body_must_be_json(api: Api) -> None:
    for headers in ({}, {"content-type": "text/plain"}):
        answer = api.post(COMPLETIONS, content=json.dumps(PROMPT).encode(), headers=headers)
        assert answer.status_code == 400
        assert "Content-Type: application/json" in _error(answer)["message"]
    answer = api.post(COMPLETIONS, content=b'{"prompt": }', headers={"content-type": "application/json"})
    assert _error(answer)["message"] == "the body is not JSON: Expecting value at character 11"
    answer = api.post(COMPLETIONS, content=b"[" * 100000, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_web_pages_of_others_may_not_call_unless_they_are_named(api: Api, make_api: MakeApi) -> None:
    origin = {"origin": "https://app.example"}
    assert "access-control-allow-origin" not in api.get("/v1/models", headers=origin).headers
    named = make_api(allowed_origins=("https://app.example",), keys=("k",))
    answer = named.get("/v1/models", headers=origin)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "https://app.example")


def test_metrics_are_prometheus(make_api: MakeApi) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    api = make_api()
    before = api.llm.stats().totals
    api.post(COMPLETIONS, PROMPT | {"ignore_eos": True})
    answer = api.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (generated,) = families["vllm:generation_tokens"].samples
    assert generated.value == before.generation_tokens + 2
    assert generated.labels == {"model_name": "tiny-llama"}
    first = [
        sample for sample in families["vllm:time_to_first_token_seconds"].samples if sample.name.endswith("_count")
    ]
    assert first[0].value == sum(before.time_to_first_token.counts) + 1
    assert {sample.labels["status"]: sample.value for sample in families["enginesmith:http_responses"].samples} == {
        "200": 1
    }
    assert {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= set(families)


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [
        (COMPLETIONS, "prompt", None),
        (COMPLETIONS, "stop", 1),
        (COMPLETIONS, "stop_token_ids", "x"),
        (COMPLETIONS, "bad_words", 1),
        ("/v1/chat/completions", "messages", 1),
        ("/detokenize", "tokens", "x"),
    ],
)
def test_of_many_wrong_items_one_is_told(api: Api, path: str, field: str, item: object) -> None:
    """An error of each would be some gigabytes of them, and minutes in which no other request is answered."""
    base = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else PROMPT
    began = time.perf_counter()
    answer = api.post(path, base | {field: [item] * 100_000})
    assert time.perf_counter() - began < 2
    assert answer.status_code == 400
    assert _error(answer)["param"].partition("[")[0] == field


def test_what_would_keep_others_waiting_is_refused_at_once(api: Api) -> None:
    size = api.llm.manifest.model.vocab_size
    bodies: dict[str, Any] = {
        "logit_bias": {"logit_bias": {str(token): 0 for token in range(size + 1)}},
        "bad_words[1]": {"bad_words": ["a", "b" * 1001]},
        "prompt": {"prompt": [size] * api.llm.manifest.limits.max_seq_len},
    }
    for param, body in bodies.items():
        answer = api.post(COMPLETIONS, PROMPT | body)
        assert (answer.status_code, _error(answer)["param"]) == (400, param)
        assert param != "prompt" or "shorten the prompt" in _error(answer)["message"]
