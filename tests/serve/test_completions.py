"""/v1/completions beside the engine's own answers."""

from typing import Any

import pytest
from http_api import Api

PATH = "/v1/completions"
GREEDY = {"temperature": 0, "max_tokens": 12}


def _text(api: Api, **body: Any) -> str:
    answer = api.post(PATH, GREEDY | body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_an_answer_has_openais_form(api: Api) -> None:
    answer = api.post(PATH, {"prompt": "the quick", "cache_salt": "form", **GREEDY}).json()
    expected = api.engine_answer("the quick", **GREEDY)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert (choice["index"], choice["text"]) == (0, expected.outputs[0].text)
    assert choice["finish_reason"] == expected.outputs[0].finish_reason
    assert answer["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": len(expected.outputs[0].token_ids),
        "total_tokens": 9 + len(expected.outputs[0].token_ids),
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_prompts_are_texts_or_token_ids_one_or_many(api: Api) -> None:
    first, second = (_text(api, prompt=prompt) for prompt in ("abc", "xyz"))
    ids = [api.llm.tokenizer.encode(text) for text in ("abc", "xyz")]
    assert _text(api, prompt=ids[0]) == first
    for prompts in (["abc", "xyz"], ids):
        choices = api.post(PATH, GREEDY | {"prompt": prompts}).json()["choices"]
        assert [(choice["index"], choice["text"]) for choice in choices] == [(0, first), (1, second)]


def test_a_stream_adds_up_to_the_whole(api: Api) -> None:
    body = {"prompt": ["abc", "xyz"], "logprobs": 2, "stream_options": {"include_usage": True}, **GREEDY}
    *events, usage = api.stream(PATH, body)
    whole = api.post(PATH, body | {"stream_options": None}).json()
    for choice in whole["choices"]:
        pieces = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1]["finish_reason"] == choice["finish_reason"]
        for name, values in choice["logprobs"].items():
            assert [value for piece in pieces for value in piece["logprobs"][name]] == values
    assert all(event["usage"] is None for event in events)
    assert usage["choices"] == []
    del usage["usage"]["prompt_tokens_details"], whole["usage"]["prompt_tokens_details"]
    assert usage["usage"] == whole["usage"]


def test_log_probabilities_are_the_engines(api: Api) -> None:
    expected = api.engine_answer("abc", logprobs=3, **GREEDY).outputs[0]
    found = api.post(PATH, GREEDY | {"prompt": "abc", "logprobs": 3}).json()["choices"][0]["logprobs"]
    entries = [entry[token] for entry, token in zip(expected.logprobs or (), expected.token_ids, strict=True)]
    assert found["token_logprobs"] == [entry.logprob for entry in entries]
    assert found["tokens"] == [entry.decoded_token for entry in entries]
    assert found["text_offset"] == [len("".join(found["tokens"][:index])) for index in range(len(entries))]
    for top, all_of_them in zip(found["top_logprobs"], expected.logprobs or (), strict=True):
        falling = sorted(all_of_them.values(), key=lambda entry: -entry.logprob)
        assert top == {entry.decoded_token: entry.logprob for entry in reversed(falling)}  # of the same text, the best


def test_cached_tokens_are_told(api: Api) -> None:
    prompt = "the quick brown fox " * 8
    body = {"prompt": prompt, "cache_salt": "told", **GREEDY}
    cold, warm = (api.post(PATH, body).json() for _ in range(2))
    assert cold["choices"] == warm["choices"]
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128


def test_stop_strings_and_tokens(api: Api) -> None:
    text = _text(api, prompt="abc")
    answer = api.post(PATH, GREEDY | {"prompt": "abc", "stop": [text[3:5]]}).json()["choices"][0]
    assert (answer["text"], answer["finish_reason"], answer["stop_reason"]) == (
        text[: text.index(text[3:5])],
        "stop",
        text[3:5],
    )
    token = api.llm.tokenizer.encode(text[0])[0]
    answer = api.post(PATH, GREEDY | {"prompt": "abc", "stop_token_ids": [token]}).json()["choices"][0]
    assert (answer["text"], answer["stop_reason"]) == ("", token)


def test_a_bias_and_a_seed_are_heeded(api: Api) -> None:
    token = api.llm.tokenizer.encode("q")[0]
    assert _text(api, prompt="abc", logit_bias={str(token): 100}, max_tokens=3) == "qqq"
    body = {"prompt": "abc", "temperature": 1.5, "max_tokens": 20, "seed": 7}
    assert api.post(PATH, body).json()["choices"] == api.post(PATH, body).json()["choices"]


def test_echo_puts_the_prompt_first(api: Api) -> None:
    text = _text(api, prompt="abc")
    assert _text(api, prompt="abc", echo=True) == "abc" + text
    assert _text(api, prompt=api.llm.tokenizer.encode("abc"), echo=True) == "abc" + text
    events = api.stream(PATH, GREEDY | {"prompt": "abc", "echo": True})
    assert "".join(event["choices"][0]["text"] for event in events) == "abc" + text


def test_log_probabilities_of_the_prompt(api: Api) -> None:
    """What lm-eval's local-completions asks for."""
    prompt = api.llm.tokenizer.encode("the quick brown fox")
    body = {"prompt": [prompt], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    (choice,) = api.post(PATH, body).json()["choices"]
    expected = api.engine_answer(prompt, temperature=0, max_tokens=1, prompt_logprobs=1, logprobs=1)
    of_prompt = expected.prompt_logprobs or []
    values = [entry and entry[token].logprob for entry, token in zip(of_prompt, prompt, strict=True)]
    assert choice["text"] == "the quick brown fox" + expected.outputs[0].text
    assert choice["logprobs"]["token_logprobs"][:-1] == values
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["tokens"][:3] == ["t", "h", "e"]
    assert choice["logprobs"]["text_offset"][:3] == [0, 1, 2]
    for top, value in zip(
        choice["logprobs"]["top_logprobs"][1:], choice["logprobs"]["token_logprobs"][1:], strict=True
    ):
        assert max(top.values()) >= value
    events = api.stream(PATH, body)
    pieces = [event["choices"][0]["logprobs"] for event in events]
    assert [value for piece in pieces for value in piece["token_logprobs"]] == choice["logprobs"]["token_logprobs"]
    alone = api.post(PATH, body | {"max_tokens": 0}).json()["choices"][0]
    assert alone["logprobs"]["token_logprobs"] == values
    plain = api.post(PATH, body | {"echo": False, "logprobs": None, "prompt_logprobs": 1}).json()["choices"][0]
    found = [
        entry and entry[str(token)]["logprob"] for entry, token in zip(plain["prompt_logprobs"], prompt, strict=True)
    ]
    assert found == values


def test_the_prompts_log_probabilities_are_streamed_before_each_output(api: Api) -> None:
    body = {"prompt": ["abc", "the quick"], "echo": True, "logprobs": 1, "n": 2, **GREEDY}
    whole = api.post(PATH, body).json()["choices"]
    events = [event["choices"][0] for event in api.stream(PATH, body)]
    for choice in whole:
        pieces = [event["logprobs"] for event in events if event["index"] == choice["index"]]
        for name, values in choice["logprobs"].items():
            assert [value for piece in pieces for value in piece[name]] == values


def test_several_outputs_of_a_prompt(api: Api) -> None:
    body = {"prompt": ["abc", "xyz"], "n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 8, "ignore_eos": True}
    answer = api.post(PATH, body).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert answer["usage"]["completion_tokens"] == 48
    assert answer["usage"]["prompt_tokens"] == 6
    assert len({choice["text"] for choice in answer["choices"]}) > 3
    texts = dict.fromkeys(range(6), "")
    for event in api.stream(PATH, body):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {choice["index"]: choice["text"] for choice in answer["choices"]}


def test_the_prompt_alone(api: Api) -> None:
    body = {"prompt": "abc", "echo": True, "max_tokens": 0, "return_token_ids": True, "min_tokens": 2}
    answer = api.post(PATH, body).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"], choice["token_ids"]) == ("abc", "length", [])
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("field", "value"), [("suffix", "end"), ("best_of", 2), ("use_beam_search", True), ("prompt_embeds", "x")]
)
def test_what_the_server_lacks_is_refused(api: Api, field: str, value: Any) -> None:
    answer = api.post(PATH, {"prompt": "abc", field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert "not supported" in answer.json()["error"]["message"]


def test_unknown_fields_are_ignored(api: Api) -> None:
    assert _text(api, prompt="abc", something_new={"a": 1}) == _text(api, prompt="abc")
