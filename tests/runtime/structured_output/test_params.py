"""Structured outputs are checked where they are made."""

import json

import pytest

from enginesmith.errors import ParameterError
from enginesmith.runtime.structured_output.params import MAX_GRAMMAR_BYTES, StructuredOutputsParams


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "structured_outputs: give exactly one of json, regex, choice, grammar, json_object; got none"),
        ({"json": {}, "regex": "a"}, "structured_outputs: give exactly one .*; got json and regex"),
        ({"json_object": False}, "got none"),
        ({"json_object": 3}, r"structured_outputs\.json_object: must be true, got 3"),
        ({"json": "{"}, r"structured_outputs\.json: is no JSON: Expecting property name"),
        ({"json": "[1]"}, r"structured_outputs\.json: must be a JSON Schema, which is an object; got \[1\]"),
        ({"json": {"const": {1, 2}}}, r"structured_outputs\.json: is no JSON: .*set is not JSON"),
        ({"json": {"const": float("nan")}}, r"structured_outputs\.json: is no JSON"),
        ({"json": {"const": "x" * MAX_GRAMMAR_BYTES}}, rf"has \d+ bytes; at most {MAX_GRAMMAR_BYTES} can be compiled"),
        ({"regex": ""}, r"structured_outputs\.regex: must be a non-empty string, got ''"),
        ({"regex": 7}, r"structured_outputs\.regex: must be a non-empty string, got 7"),
        ({"grammar": "\ud800"}, r"structured_outputs\.grammar: is not valid Unicode text"),
        ({"choice": []}, r"structured_outputs\.choice: must be a non-empty list of strings, got \[\]"),
        ({"choice": "yes"}, r"structured_outputs\.choice: must be a non-empty list of strings, got 'yes'"),
        ({"choice": ["a", ""]}, r"structured_outputs\.choice\[1\]: must be a non-empty string, got ''"),
    ],
)
def test_what_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        StructuredOutputsParams(**fields)


def test_a_schema_that_contains_itself() -> None:
    schema: dict = {}
    schema["not"] = schema
    with pytest.raises(ParameterError, match=r"structured_outputs\.json: "):
        StructuredOutputsParams(json=schema)


def test_a_schema_is_the_same_as_text_and_as_an_object() -> None:
    schema = {"type": "object", "properties": {"é": {"const": 1}}}
    assert StructuredOutputsParams(json=schema).source == StructuredOutputsParams(json=json.dumps(schema)).source
    assert StructuredOutputsParams(json_object=True).source.text == '{"type": "object"}'
