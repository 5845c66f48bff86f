"""A conversation as the body says it, and the prompt that the model's template makes of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ParameterError, shown
from .service import Service
from .tools.messages import template_messages

_OWN_FIELDS = frozenset(
    {"messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"}
)


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with their text as strings. Raises ParameterError naming the message and the part."""
    return [dict(message) | _content(message, f"messages[{index}]") for index, message in enumerate(messages)]


def checked_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """`chat_template_kwargs`. Raises ParameterError for what has a field of its own."""
    for name in variables or ():
        if name in _OWN_FIELDS:
            raise ParameterError("chat_template_kwargs", f"cannot hold {name!r}: it is a field of the request")
    return dict(variables or {})


async def render(service: Service, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """The prompt; the template runs in a process of its own, for which no other request waits."""
    checked = template_messages(checked_messages(messages))
    return await asyncio.to_thread(service.engine.render_chat, checked, **options)


def _content(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ParameterError(f"{where}.role", f"must be a string, such as 'user', got {shown(message.get('role'))}")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return {}
    if not isinstance(content, list):
        raise ParameterError(f"{where}.content", f"must be a string or a list of parts, got {shown(content)}")
    texts = [_text(part, f"{where}.content[{index}]") for index, part in enumerate(content)]
    return {"content": "\n".join(texts)}


def _text(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise ParameterError(where, f"must be an object with a type, got {shown(part)}")
    kind = part.get("type")
    if kind not in ("text", "refusal"):
        raise ParameterError(f"{where}.type", f"must be 'text', for the model reads text only, got {shown(kind)}")
    text = part.get(kind)
    if not isinstance(text, str):
        raise ParameterError(f"{where}.{kind}", f"must be a string, got {shown(text)}")
    return text
