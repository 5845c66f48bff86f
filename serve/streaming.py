"""Answers as they come: server-sent events, and what ends when the client goes away."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import StreamingResponse

from .errors import ApiError, internal
from .json_response import to_json

log = logging.getLogger(__name__)

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


class ClientGoneError(Exception):
    """The client hung up before it was answered; nobody is told."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up; then ClientGoneError is raised."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(BaseException):
                await task


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def event_stream(request: Request, pieces: AsyncIterator[bytes]) -> StreamingResponse:
    """The events as an answer, once there is a first one: what goes wrong before it has a status of its own."""
    try:
        first = await while_connected(request, anext(pieces))  # type: ignore[arg-type]
    except BaseException:
        await pieces.aclose()  # type: ignore[attr-defined]
        raise
    return StreamingResponse(
        _after(first, pieces), media_type="text/event-stream", headers={"cache-control": "no-cache"}
    )


async def _after(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """All events; an error in their midst is the last of them."""
    async with aclosing(pieces):  # type: ignore[type-var]
        yield first
        try:
            async for piece in pieces:
                yield piece
        except ApiError as error:
            yield event(error.body())
        except Exception:
            log.exception("a request failed while it was answered")
            yield event(internal().body())
        yield DONE


def event(content: Any) -> bytes:
    """One event."""
    return b"data: " + to_json(content) + b"\n\n"


class Chunks:
    """Events of one answer: what they have in common is made once."""

    def __init__(self, **common: Any) -> None:
        self._head = b"data: " + to_json(common)[:-1] + b',"choices":'

    def event(self, choices: Any, **more: Any) -> bytes:
        """An event with some choices."""
        end = b"," + to_json(more)[1:] if more else b"}"
        return self._head + to_json(choices) + end + b"\n\n"
