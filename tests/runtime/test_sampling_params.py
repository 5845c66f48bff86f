"""Sampling parameters are checked where they are made: the field, its limits and the value are named."""

import math
from typing import Any

import pytest

from enginesmith.errors import EnginesmithError, RequestError
from enginesmith.runtime.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_tokens", 0, "max_tokens must be an integer at least 1, got 0"),
        ("max_tokens", 1.5, "max_tokens must be an integer at least 1, got 1.5"),
        ("max_tokens", True, "max_tokens must be an integer"),
        ("min_tokens", -1, "min_tokens must be an integer at least 0, got -1"),
        ("min_tokens", 17, "min_tokens must be at most max_tokens (16), got 17"),
        ("temperature", -0.1, "temperature must be a number at least 0, got -0.1"),
        ("temperature", math.nan, "temperature must be a number at least 0, got nan"),
        ("temperature", math.inf, "temperature must be"),
        ("temperature", "hot", "temperature must be a number at least 0, got 'hot'"),
        ("top_k", -2, "top_k must be an integer at least -1, got -2"),
        ("top_p", 0, "top_p must be a number in (0, 1], got 0"),
        ("top_p", 1.01, "top_p must be a number in (0, 1], got 1.01"),
        ("min_p", 2, "min_p must be a number in [0, 1], got 2"),
        ("temperature", 10**400, "temperature must be a number at least 0, got 1000"),
        ("repetition_penalty", 0, "repetition_penalty must be a number in [0.001, 1000], got 0"),
        ("repetition_penalty", 1e-300, "repetition_penalty must be a number in [0.001, 1000], got 1e-300"),
        ("presence_penalty", 2.5, "presence_penalty must be a number in [-2, 2], got 2.5"),
        ("frequency_penalty", -3, "frequency_penalty must be a number in [-2, 2], got -3"),
        ("logit_bias", {5: 101}, "logit_bias[5] must be a number in [-100, 100], got 101"),
        ("logit_bias", {5: math.inf}, "logit_bias[5] must be"),
        ("logit_bias", {-5: 1}, "logit_bias's token must be an integer at least 0, got -5"),
        ("seed", 2**64, "seed must be an integer in"),
        ("stop", ["a", ""], "stop must hold non-empty strings, got ''"),
        ("stop", [3], "stop must hold non-empty strings, got 3"),
        ("stop", 5, "stop must be a list, got 5"),
        ("stop_token_ids", 5, "stop_token_ids must be a list, got 5"),
        ("stop_token_ids", b"x", "stop_token_ids must be a list, got b'x'"),
        ("logit_bias", [1], "logit_bias must map token ids to numbers, got [1]"),
        ("ignore_eos", "no", "ignore_eos must be True or False, got 'no'"),
        ("skip_special_tokens", None, "skip_special_tokens must be True or False, got None"),
        ("include_stop_str_in_output", 1, "include_stop_str_in_output must be True or False, got 1"),
        ("stop_token_ids", [-1], "stop_token_ids must be an integer at least 0, got -1"),
        ("cache_salt", "", "cache_salt must be a non-empty string, got ''"),
        ("cache_salt", 5, "cache_salt must be a non-empty string, got 5"),
        ("cache_priority", 101, "cache_priority must be an integer in [0, 100], got 101"),
        ("cache_ttl", 0, "cache_ttl must be a number greater than 0, got 0"),
        ("cache_ttl", 5, "cache_ttl says how long a cache_priority holds"),
        ("logprobs", 21, "logprobs must be an integer in [0, 20], got 21"),
    ],
)
def test_values_out_of_range(field: str, value: Any, message: str):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert message in str(caught.value)
    assert isinstance(caught.value, EnginesmithError)
    assert isinstance(caught.value, ValueError)


def test_errors_show_the_beginning_of_a_value_of_any_size():
    with pytest.raises(RequestError, match="temperature must be a number at least 0, got an integer too long to show"):
        SamplingParams(temperature=10**5000)
    nested: Any = "x"
    for _ in range(40):  # 2**40 items if it were written out
        nested = [nested, nested]
    with pytest.raises(RequestError, match=r"stop must hold non-empty strings, got \[\["):
        SamplingParams(stop=nested)


def test_limits_themselves_are_allowed():
    SamplingParams(
        max_tokens=None,
        min_tokens=100,
        temperature=0,
        top_k=-1,
        top_p=1,
        min_p=1,
        presence_penalty=-2,
        frequency_penalty=2,
        logit_bias={0: -100, 1: 100.0, 2: -math.inf},
        seed=-(2**63),
        logprobs=0,
    )


def test_defaults_are_vllms():
    params = SamplingParams()
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (16, 1.0, 1.0, 0)
    assert params.stop_strings == ()
    assert SamplingParams(stop="x").stop_strings == ("x",)
    assert not params.has_penalties
    assert SamplingParams(repetition_penalty=1.1).has_penalties


def test_replace_checks_again():
    assert SamplingParams().replace(temperature=0.5) == SamplingParams(temperature=0.5)
    with pytest.raises(RequestError, match="top_p"):
        SamplingParams().replace(top_p=2)
    with pytest.raises(RequestError, match="unknown sampling parameter 'temprature'; known are"):
        SamplingParams().replace(temprature=1)
