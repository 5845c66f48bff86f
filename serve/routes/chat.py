"""/v1/chat/completions: the next message of a conversation."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...errors import ParameterError
from ...runtime.outputs import CompletionOutput, FinishReason, RequestOutput
from ...runtime.sampling_params import SamplingParams
from ..answer import AnswerParser, whole_answer
from ..conversation import checked_variables, render
from ..engine_errors import as_answers
from ..generation import Generation, prepare
from ..json_response import JsonResponse
from ..logprobs import chat_logprobs, prompt_logprobs
from ..protocol.chat import ChatBody
from ..response_format import structured_outputs
from ..sampling import sampling_params
from ..service import Service, Shared
from ..streaming import Chunks, event_stream, while_connected
from ..tools.request import tool_request

router = APIRouter()

_FIELDS = frozenset(ChatBody.model_fields)


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatBody, request: Request, service: Shared) -> Response:
    """OpenAI's chat completions, with vLLM's extras."""
    service.check_model(body.model)
    renamed = _renamed(body)
    with as_answers(renamed, _FIELDS):
        params = _params(body, service, renamed)
        tools = tool_request(body.tools, body.tool_choice, body.parallel_tool_calls)
        asked = structured_outputs(body.response_format, body.structured_outputs)
        variables = checked_variables(body.chat_template_kwargs)
        if body.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", body.reasoning_effort)
        prompt = await render(
            service,
            body.messages,
            tools=list(tools.tools) or None,
            documents=body.documents,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            **variables,
        )
        if (form := service.answers.structured_outputs(tools, asked, prompt)) is not None:
            params = params.replace(structured_outputs=form)
        if service.answers.keeps_special_tokens(tools):
            params = params.replace(skip_special_tokens=False)
        await while_connected(request, prepare(service, params))
    generation = Generation(
        service, f"chatcmpl-{uuid4().hex}", [prompt], params, body.priority, body.add_special_tokens, renamed, _FIELDS
    )
    answer = _Answer(service, body, generation, lambda: service.answers.parser(tools, prompt))
    if body.stream:
        return await event_stream(request, answer.events())
    return JsonResponse(await while_connected(request, answer.whole()))


def _renamed(body: ChatBody) -> dict[str, str]:
    names = {"logprobs": "top_logprobs", "prompt": "messages", "": "messages"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    if body.structured_outputs is None:  # a form comes from elsewhere
        names["structured_outputs"] = "tools" if body.response_format is None else "response_format"
    return names


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

    def __init__(
        self, service: Service, body: ChatBody, generation: Generation, make_parser: Callable[[], AnswerParser]
    ) -> None:
        self._body, self._generation, self._make_parser = body, generation, make_parser
        self._tokenizer = service.engine.tokenizer
        self._parsers: dict[int, AnswerParser] = {}
        self._common = {"id": generation.request_id, "created": int(time.time()), "model": service.model}

    async def whole(self) -> dict[str, Any]:
        """The answer in one."""
        (result,) = await self._generation.whole()
        choices = []
        for output in result.outputs:
            parser = self._make_parser()
            message = whole_answer(parser, output.text).to_json()
            choices.append(self._choice(output, {"message": message}, result, parser))
        answer = {"object": "chat.completion"} | self._common | {"choices": choices}
        if self._body.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(result.prompt_logprobs or ())
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
        parser = self._parsers.get(output.index)
        if parser is None:
            parser = self._parsers[output.index] = self._make_parser()
            choices.append(_delta(output.index, {"role": "assistant", "content": ""}))
        found = parser.push(output.text) + (parser.finish() if output.finish_reason else [])
        deltas = [delta.to_json() for delta in found]
        choices += [_delta(output.index, delta) for delta in deltas[:-1]]
        if deltas or output.finish_reason or output.logprobs or self._body.return_token_ids:
            last = {"delta": deltas[-1] if deltas else {}}
            choices.append(self._choice(output, last, result, parser))
        return choices

    def _choice(
        self, output: CompletionOutput, said: dict[str, Any], result: RequestOutput, parser: AnswerParser
    ) -> dict[str, Any]:
        logprobs = None
        if output.logprobs is not None:
            logprobs = chat_logprobs(self._tokenizer, output.token_ids, output.logprobs, self._body.top_logprobs or 0)
        called = output.finish_reason is FinishReason.STOP and parser.has_tool_calls
        choice = {"index": output.index} | said
        choice |= {
            "logprobs": logprobs,
            "finish_reason": "tool_calls" if called else output.finish_reason,
            "stop_reason": output.stop_reason,
        }
        if self._body.return_token_ids:
            choice |= {"token_ids": output.token_ids, "prompt_token_ids": result.prompt_token_ids}
        return choice


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
