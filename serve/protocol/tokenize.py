"""The bodies of /tokenize and /detokenize, as vLLM has them."""

from typing import Any

from .common import Body, Items


class TokenizeBody(Body):
    """A text, or a conversation to be rendered first: exactly one of `prompt` and `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: Items[dict[str, Any]] | None = None
    tools: Any = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False


class DetokenizeBody(Body):
    """Token ids."""

    model: str | None = None
    tokens: Items[int]
    skip_special_tokens: bool = False
