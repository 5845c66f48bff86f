"""The body of /v1/completions."""

from typing import ClassVar

from .common import GenerationBody, Items


class CompletionBody(GenerationBody):
    """OpenAI's fields, and vLLM's extras."""

    refused: ClassVar = {
        "suffix": ((), "this server writes after the prompt only; leave it out"),
        "best_of": ((1,), "ask for n outputs and choose among them yourself"),
        "use_beam_search": ((False,), "leave it out"),
        "truncate_prompt_tokens": ((), "shorten the prompt, with /tokenize and /detokenize"),
        "prompt_embeds": ((), "give text or token ids"),
    }

    prompt: str | Items[str] | Items[int] | Items[Items[int]]
    echo: bool = False
    logprobs: int | None = None
    add_special_tokens: bool = True
