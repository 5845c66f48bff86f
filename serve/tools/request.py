"""`tools`, `tool_choice` and `parallel_tool_calls` of a request."""

import re
from dataclasses import dataclass
from typing import Any

from ...errors import ParameterError, shown

MAX_TOOLS = 128
"""Most tools of a request, as OpenAI has it."""

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_WORDS = ("none", "auto", "required")


@dataclass(frozen=True)
class ToolRequest:
    """What a request says of tools, checked."""

    tools: tuple[dict[str, Any], ...] = ()
    """For the chat template; none where none may be called."""
    choice: str = "none"
    """none, auto, required; or a function's name, where `named`."""
    named: bool = False
    parallel: bool = True

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The functions that may be called."""
        functions = [tool["function"] for tool in self.tools]
        return [function for function in functions if function["name"] == self.choice] if self.named else functions

    @property
    def forced(self) -> bool:
        """Whether the answer must be a call."""
        return self.named or self.choice == "required"


def tool_request(tools: object, tool_choice: object, parallel_tool_calls: object) -> ToolRequest:
    """From the fields of the body, None where they are absent. Raises ParameterError naming the field."""
    checked = _tools(tools)
    if parallel_tool_calls not in (None, True, False) or isinstance(parallel_tool_calls, int | float) != isinstance(
        parallel_tool_calls, bool
    ):
        raise ParameterError("parallel_tool_calls", f"must be true or false, got {shown(parallel_tool_calls)}")
    parallel = parallel_tool_calls is not False
    if tool_choice is None:
        return ToolRequest(checked, "auto" if checked else "none", parallel=parallel)
    if tool_choice == "none":
        return ToolRequest()
    name = _choice(tool_choice)
    if not checked:
        raise ParameterError("tool_choice", "is given without tools: give those, or leave it out")
    if name is None:
        return ToolRequest(checked, str(tool_choice), parallel=parallel)
    known = [tool["function"]["name"] for tool in checked]
    if name not in known:
        raise ParameterError("tool_choice.function.name", f"must be one of tools' names, got {shown(name)}")
    return ToolRequest(checked, name, named=True, parallel=False)


def _choice(value: object) -> str | None:
    """The function that is named, if one is."""
    if isinstance(value, str) and value in _WORDS:
        return None
    if isinstance(value, dict) and value.get("type") == "function":
        function = value.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise ParameterError("tool_choice.function.name", f"must be a string, got {shown(name)}")
        return name
    forms = 'or {"type": "function", "function": {"name": ...}}'
    raise ParameterError("tool_choice", f"must be {', '.join(_WORDS)}, {forms}, got {shown(value)}")


def _tools(value: object) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ParameterError("tools", f"must be a list of tools, got {shown(value)}")
    if len(value) > MAX_TOOLS:
        raise ParameterError("tools", f"must be at most {MAX_TOOLS}, got {len(value)}")
    names: dict[str, int] = {}
    for at, tool in enumerate(value):
        name = _checked_name(tool, f"tools[{at}]")
        if name in names:
            raise ParameterError(f"tools[{at}].function.name", f"{name!r} is the name of tools[{names[name]}], too")
        names[name] = at
    return tuple(value)


def _checked_name(tool: Any, where: str) -> str:
    if not isinstance(tool, dict):
        raise ParameterError(where, f"must be an object, got {shown(tool)}")
    if tool.get("type") != "function":
        raise ParameterError(f"{where}.type", f"must be 'function', got {shown(tool.get('type'))}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ParameterError(f"{where}.function", f"must be an object with a name, got {shown(function)}")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(
            f"{where}.function.name", f"must be 1 to 64 letters, digits, '_', '-' or '.', got {shown(name)}"
        )
    for field, kind, wanted in (
        ("description", str, "a string"),
        ("parameters", dict, "a JSON Schema, which is an object"),
        ("strict", bool, "true or false"),
    ):
        if not isinstance(function.get(field), kind | None):
            raise ParameterError(f"{where}.function.{field}", f"must be {wanted}, got {shown(function[field])}")
    return name
