"""/v1/chat/completions: the next message of a conversation."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...errors import ParameterError
from ...runtime.outputs import CompletionOutput, RequestOutput
from ...runtime.sampling_params import SamplingParams
from ..answers import JsonResponse
from ..conversation import checked_variables, render
from ..engine_errors import as_answers
from ..generation import Generation
from ..logprobs import chat_logprobs, prompt_logprobs
from ..protocol.chat import ChatBody
from ..sampling import sampling_params
from ..service import Service, Shared
from ..streaming import Chunks, event_stream, while_connected

router = APIRouter()

_FIELDS = frozenset(ChatBody.model_fields)


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatBody, request: Request, service: Shared) -> Response:
    """OpenAI's chat completions, with vLLM's extras."""
    service.check_model(body.model)
    renamed = _renamed(body)
    with as_answers(renamed, _FIELDS):
        params = _params(body, service, renamed)
        variables = checked_variables(body.chat_template_kwargs)
        if body.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", body.reasoning_effort)
        prompt = await render(
            service,
            body.messages,
            documents=body.documents,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            **variables,
        )
    generation = Generation(
        service, f"chatcmpl-{uuid4().hex}", [prompt], params, body.priority, body.add_special_tokens, renamed, _FIELDS
    )
    answer = _Answer(service, body, generation)
    if body.stream:
        return await event_stream(request, answer.events())
    return JsonResponse(await while_connected(request, answer.whole()))


def _renamed(body: ChatBody) -> dict[str, str]:
    names = {"logprobs": "top_logprobs", "prompt": "messages", "": "messages"}
    return names if body.max_completion_tokens is None else names | {"max_tokens": "max_completion_tokens"}


def _params(body: ChatBody, service: Service, renamed: dict[str, str]) -> SamplingParams:
    if body.top_logprobs is not None and not body.logprobs:
        raise ParameterError("top_logprobs", "goes with logprobs: set that to true, or leave top_logprobs out")
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    fields: dict[str, Any] = {} if asked is None else {"max_tokens": asked}
    if asked is None and "max_tokens" not in service.engine.manifest.model.generation_defaults:
        fields["max_tokens"] = None  # whatever the prompt leaves
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return sampling_params(body, service, 1, logprobs, renamed, **fields)


class _Answer:
    """One request's answer, whole or in events."""

    def __init__(self, service: Service, body: ChatBody, generation: Generation) -> None:
        self._body, self._generation = body, generation
        self._tokenizer = service.engine.tokenizer
        self._begun: set[int] = set()
        self._common = {"id": generation.request_id, "created": int(time.time()), "model": service.model}

    async def whole(self) -> dict[str, Any]:
        """The answer in one."""
        (result,) = await self._generation.whole()
        choices = [
            self._choice(output, {"message": {"role": "assistant", "content": output.text}}, result)
            for output in result.outputs
        ]
        answer = {"object": "chat.completion"} | self._common | {"choices": choices}
        if self._body.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(getattr(result, "prompt_logprobs", None) or ())
        return answer | {"usage": self._generation.usage.to_json()}

    async def events(self) -> AsyncIterator[bytes]:
        """Its events, one or several in a piece."""
        chunks, options = Chunks(object="chat.completion.chunk", **self._common), self._body.stream_options
        usage: dict[str, Any] = {"usage": None} if options is not None and options.include_usage else {}
        async with aclosing(self._generation.pieces()) as pieces:  # type: ignore[type-var]
            async for _, result in pieces:
                if options is not None and options.continuous_usage_stats:
                    usage = {"usage": self._generation.usage.to_json()}
                told = [choice for output in result.outputs for choice in self._deltas(output, result)]
                if told:
                    yield b"".join(chunks.event([choice], **usage) for choice in told)
        if options is not None and options.include_usage:
            yield chunks.event([], usage=self._generation.usage.to_json())

    def _deltas(self, output: CompletionOutput, result: RequestOutput) -> list[dict[str, Any]]:
        """The choices that tell of a piece: at first the role, and nothing where the text is held back."""
        choices = []
        if output.index not in self._begun:
            self._begun.add(output.index)
            delta = {"role": "assistant", "content": ""}
            choices.append({"index": output.index, "delta": delta, "logprobs": None, "finish_reason": None})
        if output.text or output.finish_reason or output.logprobs or self._body.return_token_ids:
            delta = {"content": output.text} if output.text else {}
            choices.append(self._choice(output, {"delta": delta}, result))
        return choices

    def _choice(self, output: CompletionOutput, said: dict[str, Any], result: RequestOutput) -> dict[str, Any]:
        logprobs = None
        if output.logprobs is not None:
            logprobs = chat_logprobs(self._tokenizer, output.token_ids, output.logprobs, self._body.top_logprobs or 0)
        choice = {"index": output.index} | said
        choice |= {"logprobs": logprobs, "finish_reason": output.finish_reason, "stop_reason": output.stop_reason}
        if self._body.return_token_ids:
            choice |= {"token_ids": output.token_ids, "prompt_token_ids": result.prompt_token_ids}
        return choice
