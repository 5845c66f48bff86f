"""Connections on which no request comes: a client that sends its head byte by byte, or nothing, holds one for ever."""

import asyncio
from collections.abc import Collection
from typing import Any


async def hang_up_on_slow_heads(connections: Collection[Any], seconds: float) -> None:
    """Close each of uvicorn's connections that has waited so long for the head of a request; runs until cancelled.

    Between two requests uvicorn has a timer of its own, the keep-alive timeout, until the next byte comes.
    """
    now = asyncio.get_running_loop().time
    waiting: dict[Any, tuple[Any, float]] = {}  # after which request, and since when
    while True:
        await asyncio.sleep(seconds / 4)
        before, waiting = waiting, {}
        for connection in [connection for connection in connections if _waits_for_head(connection)]:
            after, since = before.get(connection, (None, now()))
            if after is not connection.cycle:
                since = now()
            waiting[connection] = connection.cycle, since
            if now() - since >= seconds:
                connection.transport.close()


def _waits_for_head(connection: Any) -> bool:
    answered = connection.cycle is None or connection.cycle.response_complete
    return answered and connection.timeout_keep_alive_task is None
