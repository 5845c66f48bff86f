"""Llama 3.2 and 4, LFM2 and others: a list of calls as Python writes them, [name(key="value", other=[1, 2])]."""

import ast
import json
from collections.abc import Sequence
from typing import Any

from ..scanning import Malformed, Scan, behind_marker, nonblank, text_until
from .parser import Function, ToolParser, json_rule, parameters, repeated

_STARTS = ("<|python_start|>", "<|tool_call_start|>")
_ENDS = ("<|python_end|>", "<|tool_call_end|>")
_NAMES = {"true": True, "false": False, "null": None}
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class PythonicParser(ToolParser):
    """A list is one of calls where it begins with a function of the request. Arguments come one at a time."""

    special_tokens = True

    @classmethod
    def grammar(cls, functions: Sequence[Function], *, parallel: bool) -> str:
        """See ToolParser. Values are JSON, which this form's parser takes, too."""
        rules = ["call: " + " | ".join(f"call_{at}" for at in range(len(functions)))]
        for at, function in enumerate(functions):
            rules += _call_rules(f"call_{at}", function["name"], parameters(function))
        calls = repeated("call", '", "', parallel=parallel)
        return "\n".join([f'start: "[" {calls} "]"', *rules])

    def _read(self) -> Scan[None]:
        yield from self._attempt("", self._calls())
        while marker := (yield from text_until((*_STARTS, *_ENDS), self._out.content)):
            if marker in _STARTS:
                yield from self._attempt(marker, self._calls())

    def _calls(self) -> Scan[None]:
        if (yield from behind_marker(_STARTS)) != "[":
            raise Malformed
        char = ","
        while char == ",":
            yield from self._call()
            char = yield from nonblank()
        if char != "]":
            raise Malformed

    def _call(self) -> Scan[None]:
        name = yield from _word((yield from nonblank()), "(")
        if not self._known(name):
            raise Malformed
        begun = False
        char = yield from nonblank()
        while char != ")":
            key = yield from _word(char, "=")
            text, char = yield from _literal()
            value = json.dumps(_value(text), ensure_ascii=False)
            if not begun:
                self._out.begin(name)
            self._out.arguments(f"{', ' if begun else '{'}{json.dumps(key, ensure_ascii=False)}: {value}")
            begun = True
            if char == ",":
                char = yield from nonblank()
        if not begun:
            self._out.begin(name)
        self._out.arguments("}" if begun else "{}")


def _word(first: str, end: str) -> Scan[str]:
    """A name that begins with `first`, up to `end`."""
    word, char = "", first
    while char != end:
        if not (char.isalnum() or (char and char in "_-. ")):
            raise Malformed
        word += char
        char = yield
    return word.strip()


def _literal() -> Scan[tuple[str, str]]:
    """The text of a value, and what ends it: a comma, or the call's parenthesis."""
    text, open_brackets = "", []
    while char := (yield):
        if not open_brackets and char in ",)":
            return text, char
        text += char
        if char in "\"'":
            text += yield from _string(char)
        elif char in _BRACKETS:
            open_brackets.append(_BRACKETS[char])
        elif char in ")]}" and (not open_brackets or char != open_brackets.pop()):
            raise Malformed
    raise Malformed


def _string(quote: str) -> Scan[str]:
    """The rest of a string whose opening quote was read."""
    text, escaped = "", False
    while char := (yield):
        text += char
        if not escaped and char == quote:
            return text
        escaped = char == "\\" and not escaped
    raise Malformed


def _value(text: str) -> Any:
    try:
        return _of(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Malformed from None


def _of(node: ast.expr) -> Any:
    """Plain data that an expression writes out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_of(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(key): _of(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _of(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise ValueError


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError


def _call_rules(rule: str, name: str, schema: dict[str, Any]) -> list[str]:
    """Rules for a call of one function: what is required, then any of the rest in its order."""
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    keys = [key for key in properties if key in required] + [key for key in properties if key not in required]
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    rules = []
    for at, key in enumerate(keys):
        rules.append(f"{rule}_{at}: {json.dumps(key + '=')} {rule}_value_{at}")
        rules.append(f"{rule}_value_{at}: {json_rule(_as_object(properties[key]) | shared)}")
        more = f'{rule}_more_{at}: ", " {rule}_{at} {rule}_more_{at + 1}'
        rules.append(more if key in required else f"{more} | {rule}_more_{at + 1}")
        first = f"{rule}_first_{at}: {rule}_{at} {rule}_more_{at + 1}"
        rules.append(first if key in required else f"{first} | {rule}_first_{at + 1}")
    rules += [f'{rule}_more_{len(keys)}: ""', f'{rule}_first_{len(keys)}: ""']
    return [f'{rule}: {json.dumps(name + "(")} {rule}_first_0 ")"', *rules]


def _as_object(schema: Any) -> dict[str, Any]:
    """A schema may be true."""
    return schema if isinstance(schema, dict) else {}
