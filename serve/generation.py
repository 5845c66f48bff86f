"""The prompts of one request, run side by side."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ..runtime.async_llm import OutputIterator
from ..runtime.outputs import CompletionOutput, RequestOutput
from ..runtime.sampling_params import SamplingParams
from .engine_errors import as_answers
from .service import Service

_LONG = 2000  # characters that are worth a thread

_COMPILERS = ThreadPoolExecutor(2, "enginesmith-forms")  # of their own: chats wait for no form that takes seconds

Prompt = str | list[int]
Piece = tuple[int, RequestOutput]
"""Which prompt, and what was added to its outputs."""


@dataclass
class Usage:
    """Tokens of a request, as they add up."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """OpenAI's `usage`."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass
class Generation:
    """What a request asks of the engine: prompts, each with `params.n` outputs."""

    service: Service
    request_id: str
    prompts: Sequence[Prompt]
    params: SamplingParams
    priority: int
    add_special_tokens: bool
    renamed: Mapping[str, str]
    """What the request calls the engine's parameters, where it differs."""
    known: Collection[str]
    """The request's fields."""
    usage: Usage = field(default_factory=Usage)
    _started: set[int] = field(default_factory=set)

    async def pieces(self) -> AsyncIterator[Piece]:
        """What each step adds. Closing the iterator ends the request. Raises ApiError."""
        with as_answers(self.renamed, self.known):
            streams: list[OutputIterator] = []
            try:
                prompts = [await self._encoded(prompt) for prompt in self.prompts]
                for index, prompt in enumerate(prompts):  # all of them are queued, or none
                    streams.append(self._submit(index, prompt))
                merged = _numbered(streams[0]) if len(streams) == 1 else _merged(streams)
                async with aclosing(merged):  # type: ignore[type-var]
                    async for prompt, output in merged:
                        self._count(prompt, output)
                        yield prompt, output
            finally:
                for stream in streams:
                    await stream.aclose()

    async def whole(self) -> list[RequestOutput]:
        """Each prompt with its outputs, when all are done."""
        results: dict[int, RequestOutput] = {}
        async with aclosing(self.pieces()) as pieces:  # type: ignore[type-var]
            async for prompt, added in pieces:
                result = results.get(prompt)
                if result is None:
                    results[prompt] = added
                else:
                    _add(result, added)
        for result in results.values():
            result.outputs.sort(key=lambda output: output.index)
        return [results[index] for index in range(len(self.prompts))]

    async def _encoded(self, prompt: Prompt) -> Prompt:
        """Tokens of a long text, made in a thread: other requests do not wait for it."""
        if not isinstance(prompt, str) or len(prompt) < _LONG:
            return prompt
        return await asyncio.to_thread(self.service.engine.encode, prompt, add_special_tokens=self.add_special_tokens)

    def _submit(self, index: int, prompt: Prompt) -> OutputIterator:
        return self.service.engine.generate(
            prompt,
            self.params,
            request_id=self.request_id if len(self.prompts) == 1 else f"{self.request_id}-{index}",
            priority=self.priority,
            add_special_tokens=self.add_special_tokens,
            timeout=self.service.options.request_timeout,
        )

    def _count(self, prompt: int, output: RequestOutput) -> None:
        if prompt not in self._started:
            self._started.add(prompt)
            self.usage.prompt_tokens += len(output.prompt_token_ids)
            self.usage.cached_tokens += output.metrics.num_cached_tokens
        self.usage.completion_tokens += sum(len(added.token_ids) for added in output.outputs)


async def prepare(service: Service, params: SamplingParams) -> None:
    """Compile the form that outputs are held to, if there is one, while other requests go on."""
    if params.structured_outputs is not None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(_COMPILERS, service.engine.compile_form, params.structured_outputs)


def _add(result: RequestOutput, added: RequestOutput) -> None:
    """Append what was added to a result."""
    by_index = {output.index: output for output in result.outputs}
    for piece in added.outputs:
        output = by_index.get(piece.index)
        if output is None:
            result.outputs.append(piece)
        else:
            _append(output, piece)


def _append(output: CompletionOutput, piece: CompletionOutput) -> None:
    output.text += piece.text
    output.token_ids += piece.token_ids
    if output.logprobs is not None:
        output.logprobs += piece.logprobs or ()
    output.finish_reason, output.stop_reason = piece.finish_reason, piece.stop_reason


async def _numbered(stream: OutputIterator) -> AsyncIterator[Piece]:
    async for output in stream:
        yield 0, output


async def _merged(streams: Sequence[OutputIterator]) -> AsyncIterator[Piece]:
    """The pieces of several streams, as they come; the first error ends them all."""
    waiting = {asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                try:
                    output = task.result()
                except StopAsyncIteration:
                    continue
                waiting[asyncio.ensure_future(anext(streams[index]))] = index
                yield index, output
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
