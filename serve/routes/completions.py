"""/v1/completions: text goes on where a prompt ends."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...errors import ParameterError
from ...runtime.outputs import CompletionOutput, FinishReason, RequestOutput
from ..engine_errors import as_answers
from ..generation import Generation, Prompt, prepare
from ..json_response import JsonResponse
from ..logprobs import Entries, completion_logprobs, prompt_logprobs
from ..protocol.completions import CompletionBody
from ..response_format import structured_outputs
from ..sampling import sampling_params
from ..service import Service, Shared
from ..streaming import Chunks, event_stream, while_connected

router = APIRouter()

_FIELDS = frozenset(CompletionBody.model_fields)
_NAMES = {"": "prompt"}


@router.post("/v1/completions")
async def completions(body: CompletionBody, request: Request, service: Shared) -> Response:
    """OpenAI's legacy completions, with `echo`, `logprobs`, and prompts as texts or token ids."""
    service.check_model(body.model)
    names = _NAMES if body.structured_outputs is not None else _NAMES | {"structured_outputs": "response_format"}
    with as_answers(names, _FIELDS):
        prompts = _prompts(body.prompt)
        fields: dict[str, Any] = {} if body.max_tokens is None else {"max_tokens": body.max_tokens}
        if body.echo and body.max_tokens == 0:  # the prompt alone: a token is drawn and not shown
            fields = {"max_tokens": 1, "min_tokens": 0}
        if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
            fields["prompt_logprobs"] = body.logprobs
        if (form := structured_outputs(body.response_format, body.structured_outputs)) is not None:
            fields["structured_outputs"] = form
        params = sampling_params(body, service, len(prompts), body.logprobs, names, **fields)
        await while_connected(request, prepare(service, params))
    generation = Generation(
        service, f"cmpl-{uuid4().hex}", prompts, params, body.priority, body.add_special_tokens, names, _FIELDS
    )
    answer = _Answer(service, body, generation)
    if body.stream:
        return await event_stream(request, answer.events())
    return JsonResponse(await while_connected(request, answer.whole()))


@dataclass
class _Choice:
    """How much of an output was told."""

    echoed: bool = False
    characters: int = 0


class _Answer:
    """One request's answer, whole or in events."""

    def __init__(self, service: Service, body: CompletionBody, generation: Generation) -> None:
        self._service, self._body, self._generation = service, body, generation
        self._tokenizer = service.engine.tokenizer
        self._prompt_only = body.echo and body.max_tokens == 0
        self._n = body.n or 1
        self._choices: dict[int, _Choice] = {}
        self._prompt_logprobs: dict[int, Entries] = {}  # told with a prompt's first output alone
        self._common = {
            "id": generation.request_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.model,
        }

    async def whole(self) -> dict[str, Any]:
        """The answer in one."""
        results = await self._generation.whole()
        choices = []
        for prompt, result in enumerate(results):
            for output in result.outputs:
                choice = self._choice(prompt, result, output)
                if self._body.prompt_logprobs is not None:
                    choice["prompt_logprobs"] = prompt_logprobs(result.prompt_logprobs or ())
                choices.append(choice)
        return self._common | {"choices": choices, "usage": self._usage()}

    async def events(self) -> AsyncIterator[bytes]:
        """Its events, one or several in a piece."""
        chunks, options = Chunks(**self._common), self._body.stream_options
        usage = {"usage": None} if options is not None and options.include_usage else {}
        async with aclosing(self._generation.pieces()) as pieces:  # type: ignore[type-var]
            async for prompt, result in pieces:
                if options is not None and options.continuous_usage_stats:
                    usage = {"usage": self._usage()}
                told = [self._choice(prompt, result, output) for output in result.outputs if self._is_news(output)]
                if told:
                    yield b"".join(chunks.event([choice], **usage) for choice in told)
        if options is not None and options.include_usage:
            yield chunks.event([], usage=self._usage())

    def _is_news(self, output: CompletionOutput) -> bool:
        """Whether there is something to tell: a piece of text may have to be held back."""
        whole = self._body.logprobs is not None or self._body.return_token_ids or self._body.echo
        return bool(output.text or output.finish_reason or whole)

    def _choice(self, prompt: int, result: RequestOutput, output: CompletionOutput) -> dict[str, Any]:
        """A piece of an output, or all of it, as one of `choices`; with `echo` the prompt goes before it."""
        index = prompt * self._n + output.index
        told = self._choices.setdefault(index, _Choice())
        text, token_ids, logprobs = output.text, output.token_ids, output.logprobs or []
        if self._prompt_only:
            text, token_ids, logprobs = "", [], []
        if self._body.echo and not told.echoed:
            text = self._prompt_text(prompt) + text
            token_ids = [*result.prompt_token_ids, *token_ids]
            if self._body.logprobs is not None:
                logprobs = [*self._prompt_logprobs.setdefault(prompt, result.prompt_logprobs or ()), *logprobs]
        told.echoed = True
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": FinishReason.LENGTH if self._prompt_only else output.finish_reason,
            "stop_reason": output.stop_reason,
        }
        if self._body.logprobs is not None:
            found = completion_logprobs(self._tokenizer, token_ids, logprobs, told.characters)
            told.characters += sum(map(len, found["tokens"]))
            choice["logprobs"] = found
        if self._body.return_token_ids:
            choice |= {
                "token_ids": [] if self._prompt_only else output.token_ids,
                "prompt_token_ids": result.prompt_token_ids,
            }
        return choice

    def _prompt_text(self, index: int) -> str:
        prompt = self._generation.prompts[index]
        return prompt if isinstance(prompt, str) else self._tokenizer.decode(prompt, skip_special_tokens=False)

    def _usage(self) -> dict[str, Any]:
        usage = self._generation.usage
        if self._prompt_only:
            usage.completion_tokens = 0
        return usage.to_json()


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> Sequence[Prompt]:
    """A text, texts, token ids, or several lists of them, as a list of prompts."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ParameterError("prompt", "is empty: give a text, token ids, or a list of those")
    return [prompt] if isinstance(prompt[0], int) else prompt  # type: ignore[list-item, return-value]
