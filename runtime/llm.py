"""Text generation from an engine folder."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from ..errors import RequestError
from .client import EngineClient, Message, Prompt, require_list
from .outputs import CompletionOutput, RequestOutput
from .request import Progress
from .sampling_params import SamplingParams
from .stream import RequestStream

if TYPE_CHECKING:
    import numpy as np


class LLM(EngineClient):
    """A loaded engine, for synchronous code. Threads may share it: their requests are batched together.

    `LLM(folder)`, or with options of RuntimeConfig: `LLM(folder, threads=4, kv_cache_memory=2 << 30)`. `verify=False`
    skips the digests. Raises EngineError when the folder is damaged or does not fit this machine.
    """

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: Sequence[int] | None = None,
        add_special_tokens: bool = True,
    ) -> list[RequestOutput]:
        """Complete prompts together; outputs come in their order.

        `sampling_params` is for all or one for each; so is `priority` (lower goes first). `add_special_tokens` puts
        around a text what the tokenizer puts there, unless the text already begins with it, as a rendered chat may.
        Raises RequestError before anything runs when one of them cannot be served, EngineError when the engine failed.
        """
        return self._run(_prompt_list(prompts), sampling_params, priority, add_special_tokens)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: Sequence[int] | None = None,
        add_special_tokens: bool = False,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several. `template_options` go to `render_chat`.

        Templates write special tokens themselves, so none are added unless `add_special_tokens` asks for it.
        """
        require_list("messages", messages)
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts = [self.render_chat(conversation, **template_options) for conversation in conversations]  # type: ignore
        return self._run(prompts, sampling_params, priority, add_special_tokens)

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        add_special_tokens: bool = True,
    ) -> Iterator[CompletionOutput]:
        """What each step adds to an output, its text empty where it must be held back; with n > 1 `index` tells which.

        The request runs whether or not anybody pulls. Closing the iterator aborts it.
        """
        given = self.default_sampling_params if sampling_params is None else sampling_params
        (params,) = _one_each("sampling_params", given, SamplingParams, 1)
        steps: SimpleQueue[tuple[Progress, ...]] = SimpleQueue()

        def notify(streams: list[RequestStream]) -> None:
            steps.put(streams[0].progress)

        stream = self._admission.admit(prompt, params, notify, priority=priority, add_special_tokens=add_special_tokens)
        return self._follow(stream, steps)

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        add_special_tokens: bool = False,
        **template_options: Any,
    ) -> Iterator[CompletionOutput]:
        """`stream` for a conversation, with the options of `chat`."""
        prompt = self.render_chat(messages, **template_options)
        return self.stream(prompt, sampling_params, priority=priority, add_special_tokens=add_special_tokens)

    def compute_logits(self, token_ids: Sequence[int], chunks: Sequence[int] | None = None) -> "np.ndarray":
        """Logits after each token of a prompt, float32 [len(token_ids), vocab_size]; see `logits.compute_logits`."""
        from .logits import compute_logits

        checked = self._admission.checked_ids(token_ids)
        if chunks is not None:
            require_list("chunks", chunks)
        given_up = threading.Event()
        try:
            return self._loop.call(lambda: compute_logits(self.engine, checked, chunks, given_up.is_set))
        finally:
            given_up.set()

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests, and wait until all are finished; False when some are not after `timeout` seconds."""
        return self._loop.drain(timeout)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(
        self,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: Sequence[int] | None,
        add_special_tokens: bool,
    ) -> list[RequestOutput]:
        default = self.default_sampling_params if sampling_params is None else sampling_params
        params = _one_each("sampling_params", default, SamplingParams, len(prompts))
        priorities = _one_each("priority", 0 if priority is None else priority, int, len(prompts))
        finished: SimpleQueue[list[RequestStream]] = SimpleQueue()
        streams = [
            self._admission.admit(
                prompt, param, finished.put, final_only=True, priority=rank, add_special_tokens=add_special_tokens
            )
            for prompt, param, rank in zip(prompts, params, priorities, strict=True)
        ]
        try:
            self._loop.submit(streams)
            left = len(streams)
            while left:
                left -= len(finished.get())
        finally:
            self._loop.abort(streams)
        return [stream.whole() for stream in streams]

    def _follow(self, stream: RequestStream, steps: "SimpleQueue[tuple[Progress, ...]]") -> Iterator[CompletionOutput]:
        try:
            self._loop.submit([stream])
            while True:
                ends_with_error = stream.finished and steps.empty()
                output = stream.take(None if ends_with_error else steps.get())
                if output is not None:
                    yield from output.outputs
                    if output.finished:
                        return
        finally:
            self._loop.abort([stream])


def _prompt_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    require_list("prompts", prompts)
    if prompts and isinstance(prompts[0], SupportsIndex):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def _one_each(name: str, value: Any, kind: type, number: int) -> Sequence[Any]:
    if isinstance(value, kind):
        return [value] * number
    require_list(name, value)
    if len(value) != number:
        raise RequestError(f"{name} must be one for all or one for each of the {number} prompts, got {len(value)}")
    for item in value:
        if not isinstance(item, kind):
            raise RequestError(f"{name} must hold {kind.__name__} values, got {type(item).__name__}")
    return value
