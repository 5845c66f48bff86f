"""An answer taken apart: reasoning, content, calls of tools. What a model's chat template teaches decides how."""

from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ParameterError, RequestError, listed
from ..runtime.structured_output.params import StructuredOutputsParams, ThinkingTags
from .deltas import Delta
from .reasoning.parser import (
    REASONING_PARSERS,
    SPECIAL_TOKENS,
    ReasoningParser,
    find_reasoning_parser,
    thinking_tags,
)
from .tools.parser import ToolParser
from .tools.registry import TOOL_PARSERS, find_tool_parser
from .tools.request import ToolRequest


@dataclass(frozen=True)
class AnswerFormat:
    """How a model writes its answers."""

    tool_parser: str | None
    """A name of TOOL_PARSERS, or None: calls are not looked for."""
    reasoning_parser: str | None
    """A name of REASONING_PARSERS, or None: reasoning is not looked for."""

    @classmethod
    def of(
        cls, chat_template: str | None, tool_parser: str | None = None, reasoning_parser: str | None = None
    ) -> "AnswerFormat":
        """By name; None: what the template teaches, "none": nothing. Raises RequestError for other names."""
        for option, name, known in (
            ("--tool-parser", tool_parser, TOOL_PARSERS),
            ("--reasoning-parser", reasoning_parser, REASONING_PARSERS),
        ):
            if name not in (None, "none", *known):
                raise RequestError(f"{option} must be one of {listed(known)} or none, got {name!r}")
        template = chat_template or ""
        tool = find_tool_parser(template) if tool_parser is None else tool_parser
        reasoning = find_reasoning_parser(template) if reasoning_parser is None else reasoning_parser
        return cls(None if tool == "none" else tool, None if reasoning == "none" else reasoning)

    def structured_outputs(
        self, tools: ToolRequest, asked: StructuredOutputsParams | None, prompt: str
    ) -> StructuredOutputsParams | None:
        """What holds the answer to `prompt` to its form: `asked` for, or calls where they are forced.

        Reasoning may come first. Raises ParameterError for what contradicts each other, or cannot be had of this model.
        """
        self._parser_of(tools)
        if tools.forced:
            if asked is not None:
                raise ParameterError("response_format", "contradicts tool_choice, which makes the answer a call")
            form = TOOL_PARSERS[self.tool_parser or ""]
            asked = StructuredOutputsParams(grammar=form.grammar(tools.functions, parallel=tools.parallel))
        return None if asked is None else replace(asked, thinking=self._thinking(prompt))

    def keeps_special_tokens(self, tools: ToolRequest) -> bool:
        """Whether the text must hold special tokens, for they mark its parts."""
        form = self._parser_of(tools)
        return self.reasoning_parser in SPECIAL_TOKENS or (form is not None and form.special_tokens)

    def parser(self, tools: ToolRequest, prompt: str) -> "AnswerParser":
        """For one answer to `prompt`."""
        form, tags = self._parser_of(tools), self._thinking(prompt)
        names = [function["name"] for function in tools.functions]
        return AnswerParser(tags and ReasoningParser(tags), form and form(names))

    def _thinking(self, prompt: str) -> ThinkingTags | None:
        return None if self.reasoning_parser is None else thinking_tags(self.reasoning_parser, prompt)

    def _parser_of(self, tools: ToolRequest) -> type[ToolParser] | None:
        if not tools.tools:
            return None
        if self.tool_parser is None:
            raise ParameterError(
                "tools",
                "this model's chat template teaches no form of calls that is known here: "
                f"start the server with --tool-parser, one of {listed(TOOL_PARSERS)}, or leave tools out",
            )
        return TOOL_PARSERS[self.tool_parser]


class AnswerParser:
    """One answer, as it comes."""

    def __init__(self, reasoning: ReasoningParser | None, tools: ToolParser | None) -> None:
        self._reasoning, self._tools = reasoning, tools

    @property
    def has_tool_calls(self) -> bool:
        """Whether a call was found so far."""
        return self._tools is not None and self._tools.calls > 0

    def push(self, text: str) -> list[Delta]:
        """What a piece of the text adds to the message."""
        thought, answer = self._reasoning.push(text) if self._reasoning else ("", text)
        return self._deltas(thought, answer)

    def finish(self) -> list[Delta]:
        """What is added when no more text comes."""
        thought, answer = self._reasoning.finish() if self._reasoning else ("", "")
        return self._deltas(thought, answer) + (self._tools.finish() if self._tools else [])

    def _deltas(self, thought: str, answer: str) -> list[Delta]:
        deltas = [Delta(reasoning_content=thought)] if thought else []
        if answer:
            deltas += self._tools.push(answer) if self._tools else [Delta(content=answer)]
        return deltas


@dataclass
class Message:
    """An answer as a whole."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        """What a piece added."""
        self.content += delta.content
        self.reasoning_content += delta.reasoning_content
        if (call := delta.tool_call) is not None:
            if call.id is not None:
                function = {"name": call.name, "arguments": ""}
                self.tool_calls.append({"id": call.id, "type": "function", "function": function})
            self.tool_calls[call.index]["function"]["arguments"] += call.arguments

    def to_json(self) -> dict[str, Any]:
        """OpenAI's message; what is absent is left out, but for the content."""
        fields: dict[str, Any] = {"role": "assistant", "content": self.content or (None if self.tool_calls else "")}
        if self.reasoning_content:
            fields["reasoning_content"] = self.reasoning_content
        return fields | ({"tool_calls": self.tool_calls} if self.tool_calls else {})


def whole_answer(parser: AnswerParser, text: str) -> Message:
    """A text that is complete."""
    message = Message()
    for delta in parser.push(text) + parser.finish():
        message.add(delta)
    return message
