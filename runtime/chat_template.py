"""Chat templates: Jinja programs that come with a model, rendered as Transformers renders them, in a process apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ChatTemplateError, RequestError, shown
from .plain_data import plain
from .template_process import template_process

_FINAL_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A model's templates by name, and the special tokens they may name. They compile when they are first used."""

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str]) -> None:
        self._templates = templates
        self._special_tokens = special_tokens

    @property
    def source(self) -> str:
        """The text of all of them: what they teach can be read there."""
        return "\n".join(self._templates.values())

    def check(self) -> None:
        """Raise ChatTemplateError if any of them does not compile."""
        for source in self._templates.values():
            template_process.render(source, None)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation, ending where the assistant's answer begins.

        `chat_template` is the name of one of the model's templates, or a template; without it a model that has several
        uses "tool_use" where `tools` are given, else "default". `continue_final_message` leaves the last message open
        instead. `variables` are for the template. Raises ChatTemplateError with the template's own complaint (many
        demand alternating roles) or when it goes too far, RequestError for messages that are none.
        """
        source = self._choose(chat_template, tools)
        messages = plain("messages", messages)
        if not isinstance(messages, list | tuple):
            raise RequestError(f"messages must be a list of objects, got {shown(messages)}")
        chat = [_message(message, index) for index, message in enumerate(messages)]
        if not chat:
            raise RequestError("messages is empty: a conversation needs at least one message")
        final = _mark_final(chat) if plain("continue_final_message", continue_final_message) else None
        context = {
            **self._special_tokens,
            "tools": plain("tools", tools),
            "documents": plain("documents", documents),
            **{name: plain(name, value) for name, value in variables.items()},
            "messages": chat,
            "add_generation_prompt": bool(plain("add_generation_prompt", add_generation_prompt)) and final is None,
        }
        text = template_process.render(source, context)
        return text if final is None else _cut_at_mark(text, final)

    def _choose(self, asked: str | None, tools: object) -> str:
        if asked is not None and not isinstance(asked, str):
            raise RequestError(f"chat_template must be a template or its name, got {type(asked).__name__}")
        name = asked or ("tool_use" if tools is not None and "tool_use" in self._templates else "default")
        source = self._templates.get(name)
        if source is not None:
            return source
        if asked and "{" in asked:
            return asked
        raise ChatTemplateError(
            f"this model has no chat template {shown(name)}: name one with chat_template, of "
            f"{', '.join(map(shown, sorted(self._templates)))}"
        )


def _message(message: Any, index: int) -> dict[str, Any]:
    """A message as templates expect it: without absent fields, reasoning under each of its names."""
    if not isinstance(message, dict):
        raise RequestError(f"messages must be objects with 'role' and 'content', got {shown(message)}")
    fields = {key: value for key, value in message.items() if value is not None}
    if "role" not in fields:
        raise RequestError(f"messages[{index}] has no 'role': give one, such as 'user'")
    if len(fields) == 1:
        raise RequestError(f"messages[{index}], of role {shown(fields['role'])}, has no 'content': give its text")
    reasoning = next((fields[name] for name in _REASONING if name in fields), None)
    return fields if reasoning is None else {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def _mark_final(chat: list[dict[str, Any]]) -> str:
    """Put a mark at the end of the last message's text; returns that text."""
    content = chat[-1].get("content")
    if isinstance(content, str):
        chat[-1]["content"] = content + _FINAL_TAG
        return content
    for block in reversed(content if isinstance(content, list | tuple) else ()):
        if isinstance(block, dict) and isinstance(text := block.get("text"), str):
            block["text"] = text + _FINAL_TAG
            return text
    raise RequestError("continue_final_message is set, but the last message has no text to continue")


def _cut_at_mark(text: str, final: str) -> str:
    mark = text.rfind(_FINAL_TAG.strip())
    if mark < 0 or final.strip() not in text:
        raise RequestError("continue_final_message is set, but the chat template leaves the last message out")
    kept = text[:mark]
    return kept if text[mark : mark + len(_FINAL_TAG)] == _FINAL_TAG else kept.rstrip()
