"""`response_format` and `structured_outputs` of a body: errors name the field."""

import pytest

from enginesmith.errors import ParameterError
from enginesmith.runtime.structured_output.params import StructuredOutputsParams
from enginesmith.serve.response_format import structured_outputs


def test_what_is_asked_for() -> None:
    schema = {"type": "object"}
    described = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert structured_outputs(None, None) is None
    assert structured_outputs({"type": "text"}, None) is None
    assert structured_outputs({"type": "json_object"}, None) == StructuredOutputsParams(json_object=True)
    assert structured_outputs(described, None) == StructuredOutputsParams(json=schema)
    assert structured_outputs({"type": "text"}, {"regex": "a"}) == StructuredOutputsParams(regex="a")
    assert structured_outputs(None, {"choice": ["a"]}) == StructuredOutputsParams(choice=["a"])


@pytest.mark.parametrize(
    ("response_format", "given", "parameter", "message"),
    [
        ("json", None, "response_format.type", "must be 'text', 'json_object' or 'json_schema', got 'json'"),
        ({}, None, "response_format.type", "got None"),
        ({"type": "json_schema"}, None, "response_format.json_schema.schema", "must be a JSON Schema, .* got None"),
        ({"type": "json_schema", "json_schema": {"schema": 3}}, None, "response_format.json_schema.schema", "got 3"),
        ({"type": "json_object"}, {"regex": "a"}, "response_format", "contradicts structured_outputs"),
        (None, "a", "structured_outputs", "must be an object, got 'a'"),
        (
            None,
            {"xml": 1},
            "structured_outputs",
            "has no field 'xml'; known are json, regex, choice",
        ),
        (None, {"regex": 1}, "structured_outputs.regex", "must be a non-empty string, got 1"),
        (None, {}, "structured_outputs", "give exactly one"),
    ],
)
def test_what_is_refused(response_format: object, given: object, parameter: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as error:
        structured_outputs(response_format, given)
    assert error.value.parameter == parameter
