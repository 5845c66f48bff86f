"""The body of /v1/chat/completions."""

from typing import Any, ClassVar

from pydantic import Field

from .common import GenerationBody, Items


class ChatBody(GenerationBody):
    """OpenAI's fields, and vLLM's extras."""

    refused: ClassVar = {
        "echo": ((False,), "put the last message's text before the answer yourself"),
        "functions": (([],), "use tools"),
        "function_call": (("none", "auto"), "use tool_choice"),
        "audio": ((), "this server writes text only; leave it out"),
        "modalities": ((["text"], []), "this server writes text only; leave it out"),
        "chat_template": ((), "this server renders chats by the model's own template; leave it out"),
        "use_beam_search": ((False,), "leave it out"),
        "truncate_prompt_tokens": ((), "shorten the conversation"),
        "best_of": ((1,), "ask for n outputs and choose among them yourself"),
    }

    messages: Items[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    documents: Items[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
