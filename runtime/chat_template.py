"""Chat templates: Jinja programs that come with a model, rendered as Transformers renders them, on a short lead.

A template is untrusted. It runs in Jinja's immutable sandbox, sees plain data only, and its loops, calls, time, and the
size of what it builds are limited.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from ..errors import RequestError
from .template_sandbox import SandboxedTemplates

_FINAL_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A compiled template and the special tokens it may name. Raises RequestError when it does not compile."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._sandbox = SandboxedTemplates()
        try:
            self._template = self._sandbox.from_string(source)
        except TemplateError as error:
            raise RequestError(f"the chat template does not compile: {error}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation, ending where the assistant's answer begins.

        `continue_final_message` leaves the last message open instead. `variables` are for the template.
        Raises RequestError with the template's own complaint (many demand alternating roles), or when it goes too far.
        """
        try:
            chat = [_message(message, index) for index, message in enumerate(messages)]
        except RecursionError:
            raise RequestError("messages contain themselves, or are nested too deeply") from None
        if not chat:
            raise RequestError("messages is empty: a conversation needs at least one message")
        final = self._mark_final(chat) if continue_final_message else None
        options = {"tools": _plain(tools), "documents": _plain(documents), **_plain(variables)}
        text = self._render(
            {**self._special_tokens, **options, "messages": chat}, add_generation_prompt and final is None
        )
        return text if final is None else _cut_at_mark(text, final)

    def _render(self, variables: dict[str, Any], add_generation_prompt: bool) -> str:
        self._sandbox.meter.restart()
        try:
            pieces, size = [], 0
            for piece in self._template.generate(**variables, add_generation_prompt=add_generation_prompt):
                pieces.append(piece)
                size += len(piece)
                self._sandbox.meter.step()
                self._sandbox.meter.check_size(size)
            return "".join(pieces)
        except RecursionError:
            raise RequestError("the chat template calls itself without end") from None
        except MemoryError:
            raise RequestError("the chat template builds a text too large for the memory") from None
        except TemplateError as error:
            raise RequestError(f"the chat template refused the conversation: {error}") from None
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError) as error:
            raise RequestError(f"the chat template failed on the conversation: {error!r}") from None

    def _mark_final(self, chat: list[dict[str, Any]]) -> str:
        """Put a mark at the end of the last message's text; returns that text."""
        content = chat[-1].get("content")
        if isinstance(content, str):
            chat[-1]["content"] = content + _FINAL_TAG
            return content
        for block in reversed(content or ()):
            if isinstance(block, dict) and "text" in block:
                text = block["text"]
                block["text"] = text + _FINAL_TAG
                return text
        raise RequestError("continue_final_message is set, but the last message has no text to continue")


def _cut_at_mark(text: str, final: str) -> str:
    mark = text.rfind(_FINAL_TAG.strip())
    if mark < 0 or final.strip() not in text:
        raise RequestError("continue_final_message is set, but the chat template leaves the last message out")
    kept = text[:mark]
    return kept if text[mark : mark + len(_FINAL_TAG)] == _FINAL_TAG else kept.rstrip()


def _message(message: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A message as templates expect it: plain, without absent fields, reasoning under each of its names."""
    if not isinstance(message, Mapping):
        raise RequestError(f"messages must be objects with 'role' and 'content', got {message!r}")
    fields = {key: value for key, value in _plain(message).items() if value is not None}
    if "role" not in fields:
        raise RequestError(f"messages[{index}] has no 'role': give one, such as 'user'")
    if len(fields) == 1:
        raise RequestError(f"messages[{index}], of role {fields['role']!r}, has no 'content': give its text")
    reasoning = next((fields[name] for name in _REASONING if name in fields), None)
    return fields if reasoning is None else {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def _plain(value: Any) -> Any:
    """JSON-like data rebuilt of exact built-in types; anything else becomes the name of its type."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else list(map(_plain, value))
    return f"<{type(value).__name__}>"
