"""What an output must be: vLLM's names, checked where they are made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import ParameterError, shown

MAX_GRAMMAR_BYTES = 256 << 10
"""Most that a schema, a regular expression, a grammar or all choices together may take, in UTF-8."""


class ThinkingTags(NamedTuple):
    """What a model puts around its reasoning. `opened`: the prompt ends within it."""

    start: str
    end: str
    opened: bool


class GrammarSource(NamedTuple):
    """What is compiled. `kind` names the field that it comes from, `text` is its JSON where it is no text itself."""

    kind: str
    text: str
    thinking: ThinkingTags | None


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams:
    """A form for the whole output; exactly one is given. Raises ParameterError naming the field."""

    json: str | Mapping[str, Any] | None = None
    """A JSON Schema, as text or as an object."""
    regex: str | None = None
    """A regular expression in the syntax of Rust's `regex`, without look-around; it must match all of the output."""
    choice: Sequence[str] | None = None
    """Strings, of which the output is one."""
    grammar: str | None = None
    """A context-free grammar, in llama.cpp's GBNF or llguidance's Lark."""
    json_object: bool | None = None
    """True: any JSON object."""
    thinking: ThinkingTags | None = None
    """The output may begin with reasoning between these tags, of any form."""

    def __post_init__(self) -> None:
        kinds = ("json", "regex", "choice", "grammar", "json_object")
        given = [name for name in kinds if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ParameterError("structured_outputs", f"give exactly one of {', '.join(kinds)}; got {found}")
        if self.json_object not in (None, False, True):
            raise ParameterError("structured_outputs.json_object", f"must be true, got {shown(self.json_object)}")
        size = len(self.source.text.encode("utf-8", "surrogatepass"))
        if size > MAX_GRAMMAR_BYTES:
            raise ParameterError(
                f"structured_outputs.{given[0]}", f"has {size} bytes; at most {MAX_GRAMMAR_BYTES} can be compiled"
            )

    @cached_property
    def source(self) -> GrammarSource:
        """What is to be compiled; equal ones compile to the same."""
        if self.json is not None:
            return GrammarSource("json", _schema(self.json), self.thinking)
        if self.regex is not None:
            return GrammarSource("regex", _text("regex", self.regex), self.thinking)
        if self.choice is not None:
            return GrammarSource("choice", _choices(self.choice), self.thinking)
        if self.grammar is not None:
            return GrammarSource("grammar", _text("grammar", self.grammar), self.thinking)
        return GrammarSource("json", '{"type": "object"}', self.thinking)


def _schema(value: object) -> str:
    """A schema's text. The compiler is told of its keywords; here it must be an object."""
    name = "structured_outputs.json"
    try:
        schema = json.loads(value) if isinstance(value, str) else value
        if not isinstance(schema, Mapping):
            raise ParameterError(name, f"must be a JSON Schema, which is an object; got {shown(schema)}")
        return json.dumps(dict(schema), allow_nan=False)
    except ParameterError:
        raise
    except (ValueError, TypeError) as error:
        raise ParameterError(name, f"is no JSON: {error}") from None
    except RecursionError:
        raise ParameterError(name, "is nested too deeply") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError(f"structured_outputs.{name}", f"must be a non-empty string, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ParameterError(f"structured_outputs.{name}", "is not valid Unicode text: a lone surrogate") from None
    return value


def _choices(value: object) -> str:
    if not isinstance(value, list | tuple) or not value:
        raise ParameterError("structured_outputs.choice", f"must be a non-empty list of strings, got {shown(value)}")
    return json.dumps([_text(f"choice[{index}]", choice) for index, choice in enumerate(value)])
