"""generation_config.json, as published models have it and as they should not."""

import re
from typing import Any

import pytest

from enginesmith.builder.generation_defaults import generation_defaults
from enginesmith.runtime.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({}, {}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"do_sample": False}, {"temperature": 0.0}),
        ({"do_sample": False, "temperature": 0.7, "top_k": 20}, {"temperature": 0.0, "top_k": 20}),
        ({"do_sample": False, "repetition_penalty": 1.1}, {"temperature": 0.0, "repetition_penalty": 1.1}),
        ({"max_new_tokens": 2048, "min_p": 0.05}, {"max_tokens": 2048, "min_p": 0.05}),
        ({"temperature": None, "top_k": 0, "no_repeat_ngram_size": 0, "num_beams": 1, "typical_p": 1.0}, {"top_k": 0}),
        (
            {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": [2, 3], "transformers_version": "4.31.0"},
            {},
        ),
    ],
)
def test_what_is_applied(config: dict[str, Any], values: dict[str, float]) -> None:
    found = generation_defaults(config)
    assert found.values == values
    assert not found.notes
    SamplingParams().replace(**found.values)


@pytest.mark.parametrize(
    ("config", "values", "note"),
    [
        ({"top_k": 50.0}, {"top_k": 50}, "top_k is taken as 50, not 50.0"),
        ({"top_k": 50.5}, {}, "top_k is not applied: top_k must be an integer at least -1, got 50.5"),
        ({"top_p": 0.0}, {}, r"top_p is not applied: top_p must be a number in \(0, 1\], got 0.0"),
        ({"top_p": "0.9"}, {}, "top_p is not applied: .* got '0.9'"),
        ({"temperature": -5}, {}, "temperature is not applied: temperature must be a number at least 0, got -5"),
        ({"temperature": float("nan")}, {}, "temperature is not applied"),
        ({"repetition_penalty": 0}, {}, "repetition_penalty is not applied"),
        ({"max_new_tokens": 0}, {}, "max_new_tokens is not applied: max_tokens must be an integer at least 1, got 0"),
        ({"suppress_tokens": [1, 2]}, {}, r"'suppress_tokens' \(\[1, 2\]\) is not applied"),
        ({"bad_words_ids": [[7]]}, {}, r"'bad_words_ids' \(\[\[7\]\]\) is not applied"),
        ({"no_repeat_ngram_size": 3}, {}, r"'no_repeat_ngram_size' \(3\) is not applied"),
        ({"min_new_tokens": 4}, {}, r"'min_new_tokens' \(4\) is not applied"),
        ({"max_length": 4096}, {}, r"'max_length' \(4096\) is not applied"),
        ({"num_beams": 4}, {}, r"'num_beams' \(4\) is not applied"),
    ],
)
def test_what_is_named(config: dict[str, Any], values: dict[str, float], note: str) -> None:
    found = generation_defaults(config)
    assert found.values == values
    (only,) = found.notes
    assert re.search(note, only), only
