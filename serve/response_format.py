"""`response_format` of OpenAI's API, and vLLM's `structured_outputs`."""

from typing import Any

from ..errors import ParameterError, shown
from ..runtime.structured_output.params import StructuredOutputsParams

_FIELDS = ("json", "regex", "choice", "grammar", "json_object")


def structured_outputs(response_format: object, given: object) -> StructuredOutputsParams | None:
    """What the fields of a body ask for, None where they are absent. Raises ParameterError naming the field."""
    asked = None if response_format is None else _of_response_format(response_format)
    if given is None:
        return asked
    if asked is not None:
        raise ParameterError("response_format", "contradicts structured_outputs: give one of the two")
    if not isinstance(given, dict):
        raise ParameterError("structured_outputs", f"must be an object, got {shown(given)}")
    for name in given.keys() - set(_FIELDS):
        raise ParameterError("structured_outputs", f"has no field {shown(name)}; known are {', '.join(_FIELDS)}")
    return StructuredOutputsParams(**given)


def _of_response_format(value: Any) -> StructuredOutputsParams | None:
    kind = value.get("type") if isinstance(value, dict) else value
    if not isinstance(value, dict) or kind not in ("text", "json_object", "json_schema"):
        raise ParameterError(
            "response_format.type", f"must be 'text', 'json_object' or 'json_schema', got {shown(kind)}"
        )
    if kind == "text":
        return None
    if kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    described = value.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise ParameterError(
            "response_format.json_schema.schema", f"must be a JSON Schema, which is an object, got {shown(schema)}"
        )
    return StructuredOutputsParams(json=schema)
