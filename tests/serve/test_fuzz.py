"""Whatever a field holds, the answer is 2xx, or 4xx naming a field; never 500.

A few dozen bodies of each route; ENGINESMITH_FUZZ sets how many.
"""

import json
import os
import re
from typing import Any

import pytest
from http_api import Api
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginesmith.serve.protocol.chat import ChatBody
from enginesmith.serve.protocol.common import Body
from enginesmith.serve.protocol.completions import CompletionBody
from enginesmith.serve.protocol.tokenize import DetokenizeBody, TokenizeBody

COUNT = int(os.environ.get("ENGINESMITH_FUZZ", "60"))
JSON = {"content-type": "application/json"}
MESSAGES = [{"role": "user", "content": "hi"}]
ROUTES: list[tuple[str, type[Body], dict[str, Any]]] = [
    ("/v1/completions", CompletionBody, {"prompt": "abc", "max_tokens": 3}),
    ("/v1/chat/completions", ChatBody, {"messages": MESSAGES, "max_tokens": 3}),
    ("/tokenize", TokenizeBody, {"prompt": "abc"}),
    ("/detokenize", DetokenizeBody, {"tokens": [5, 6]}),
]

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 130),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30]),
    st.floats(-3, 3),
    st.sampled_from([float("nan"), float("inf"), float("-inf"), 1e308]),
    st.text(max_size=8),
    st.sampled_from(["", "auto", "none", "text", "\ud800", "\0", "user", "x" * 500]),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=4), st.sampled_from(["role", "content", "type", "5", "-1", "text", "\ud800"])),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def _names(model: type[Body]) -> list[str]:
    return sorted({*model.model_fields, *model.refused})


@pytest.mark.parametrize(("path", "model", "base"), ROUTES, ids=[route[0] for route in ROUTES])
def test_every_field_of_every_route(api: Api, path: str, model: type[Body], base: dict[str, Any]) -> None:
    @settings(max_examples=COUNT, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(st.dictionaries(st.sampled_from(_names(model)), _values, min_size=1, max_size=4))
    def check(fields: dict[str, Any]) -> None:
        answer = api.post(path, content=json.dumps(base | fields).encode(), headers=JSON)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["param"] is not None, error
            named = re.split(r"[.\[]", error["param"])[0]
            assert named in _names(model), error
            assert named in fields or named in base, error

    check()


@settings(max_examples=COUNT, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.sampled_from([route[0] for route in ROUTES]), st.one_of(st.binary(max_size=40), _values.map(json.dumps)))
def test_bodies_that_are_no_request(api: Api, path: str, body: bytes | str) -> None:
    content = body if isinstance(body, bytes) else body.encode()
    answer = api.post(path, content=content, headers=JSON)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]["message"]
