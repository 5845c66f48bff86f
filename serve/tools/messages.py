"""Messages that hold calls, as chat templates expect them: arguments as objects, results with their function's name."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ParameterError, shown


def template_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of OpenAI's API for a template. Raises ParameterError naming the message and the field."""
    names: dict[Any, str] = {}
    converted = []
    for at, message in enumerate(messages):
        message = dict(message)
        if message.get("role") == "assistant" and message.get("tool_calls"):
            message["tool_calls"] = _calls(message["tool_calls"], f"messages[{at}].tool_calls", names)
            if message.get("content") is None:  # clients leave it out, and templates add it to a string
                message["content"] = ""
        if message.get("role") == "tool" and isinstance(call := message.get("tool_call_id"), str) and call in names:
            message.setdefault("name", names[call])
        converted.append(message)
    return converted


def _calls(calls: Any, where: str, names: dict[Any, str]) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise ParameterError(where, f"must be a list of calls, got {shown(calls)}")
    converted = []
    for at, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ParameterError(f"{where}[{at}].function", f"must be an object with a name, got {shown(function)}")
        arguments = _arguments(function.get("arguments"), f"{where}[{at}].function.arguments")
        if isinstance(call.get("id"), str):
            names[call["id"]] = function["name"]
        converted.append(call | {"function": function | {"arguments": arguments}})
    return converted


def _arguments(value: Any, where: str) -> dict[str, Any]:
    try:
        arguments = json.loads(value) if isinstance(value, str) and value else value or {}
    except (ValueError, RecursionError) as error:
        raise ParameterError(where, f"must be JSON, got {shown(value)}: {error}") from None
    if not isinstance(arguments, dict):
        raise ParameterError(where, f"must be a JSON object, got {shown(value)}")
    return arguments
