"""Text generation from an engine folder, for asyncio."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..errors import RequestError, shown
from .client import EngineClient, Prompt
from .engine_loop import EngineLoop
from .outputs import RequestOutput
from .runtime_config import RuntimeConfig
from .sampling_params import SamplingParams
from .snapshot import CacheMap, cache_map
from .stream import Notify, RequestStream
from .token_constraint import TokenConstraint


class AsyncLLM(EngineClient):
    """A loaded engine, for coroutines of any event loop; see `LLM` for its options.

    `max_queued`: how many requests may wait to be started; QueueFullError beyond. None: any number.
    """

    def __init__(
        self,
        engine: str | Path,
        config: RuntimeConfig | None = None,
        *,
        verify: bool = True,
        max_queued: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(engine, config, verify=verify, max_queued=max_queued, **options)
        self._followed: WeakValueDictionary[str, OutputIterator] = WeakValueDictionary()
        self._notifiers: WeakKeyDictionary[asyncio.AbstractEventLoop, Notify] = WeakKeyDictionary()

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        add_special_tokens: bool = True,
        timeout: float | None = None,
        constraint: Callable[[], TokenConstraint] | None = None,
    ) -> "OutputIterator":
        """Submit a request now; iterate over what each step adds to it, whether or not it is awaited.

        `request_id` names it for `abort`, and must be nobody else's; lower `priority` goes first; `timeout` is in
        seconds; `constraint` makes what each of its sequences must follow. Raises RequestError, QueueFullError and
        EngineClosedError at once.
        """
        params = self.default_sampling_params if sampling_params is None else sampling_params
        if request_id is not None and request_id in self._followed:
            raise RequestError(f"request_id {shown(request_id)} is that of a request under way: give each its own")
        stream = self._admission.admit(
            prompt,
            params,
            self._notifier(),
            request_id=request_id,
            priority=priority,
            add_special_tokens=add_special_tokens,
            timeout=timeout,
            constraint=constraint,
        )
        outputs = OutputIterator(stream, self._loop)
        self._followed[stream.request_id] = outputs
        self._loop.submit([stream])
        return outputs

    def abort(self, request_id: str) -> bool:
        """End a request before the next step: its iterator ends with the reason "abort". False: there is none."""
        outputs = self._followed.get(request_id)
        if outputs is None:
            return False
        outputs.abort()
        return True

    async def cache_map(self) -> CacheMap:
        """Which request holds which blocks of the KV cache, between two steps."""
        return await asyncio.to_thread(self._loop.call, lambda: cache_map(self.engine))

    async def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests, and wait until all are finished; False when some are not after `timeout` seconds."""
        return await asyncio.to_thread(self._loop.drain, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _notifier(self) -> Notify:
        """The one of the running event loop: a step wakes a loop once, however many of its requests moved."""
        loop = asyncio.get_running_loop()
        if loop not in self._notifiers:
            followed, call_soon = self._followed, loop.call_soon_threadsafe

            def wake(streams: list[RequestStream]) -> None:
                for stream in streams:
                    if (outputs := followed.get(stream.request_id)) is not None:
                        outputs.wake()

            def notify(streams: list[RequestStream]) -> None:
                call_soon(wake, streams)

            self._notifiers[loop] = notify
        return self._notifiers[loop]


class OutputIterator:
    """What comes of a request, for one coroutine: `async for output in iterator`.

    `output.outputs` has a CompletionOutput for each sequence that has something new; pieces that nobody awaited
    meanwhile come as one, and the last RequestOutput is `finished`. Dropping or closing the iterator, or cancelling who
    awaits it, aborts the request. Raises RequestTimeoutError, and EngineError when the engine failed.
    """

    def __init__(self, stream: RequestStream, loop: EngineLoop) -> None:
        self.request_id = stream.request_id
        self._stream = stream
        self._loop = loop
        self._event_loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        if asyncio.get_running_loop() is not self._event_loop:
            raise RequestError("a request's outputs come on the event loop that it was submitted on: await them there")
        try:
            while not self._ended:
                if (output := self._stream.take()) is not None:
                    self._ended = output.finished
                    return output
                await self._news.wait()
                self._news.clear()
        except BaseException:
            self.abort()
            raise
        raise StopAsyncIteration

    def wake(self) -> None:
        """There is something new. Called on the event loop."""
        self._news.set()

    def abort(self) -> None:
        """End the request, wherever it is."""
        self._loop.abort([self._stream])

    async def aclose(self) -> None:
        """End the request, and the iteration."""
        self._ended = True
        self.abort()

    def __del__(self) -> None:
        self.abort()
