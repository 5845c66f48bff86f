"""Whether the server takes requests: while it drains, those that run go on and new ones are sent away."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import ApiError, unavailable
from .json_response import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Lifecycle:
    """Counts the requests in progress, and turns new ones away once it is told to drain."""

    def __init__(self) -> None:
        self.draining = False
        self.ending = False
        """Nothing is waited for any more: what has no end of its own ends now."""
        self.answers: Counter[int] = Counter()
        """HTTP answers by status."""
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """A request begins."""
        self._active += 1
        self._idle.clear()

    def leave(self) -> None:
        """It has been answered, or its client is gone."""
        self._active -= 1
        if not self._active:
            self._idle.set()

    async def drain(self, seconds: float) -> bool:
        """Take no more requests; wait until none is left, so long at most. Returns whether that came about."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            self.ending = True
        return True


class Admission:
    """The ASGI middleware that counts requests, and answers 503 where there is no room for one.

    `connections`: how many are open; of more than `max_connections` none is served.
    """

    def __init__(
        self, app: "ASGIApp", lifecycle: Lifecycle, connections: Callable[[], int], max_connections: int
    ) -> None:
        self._app, self._lifecycle = app, lifecycle
        self._connections, self._max_connections = connections, max_connections

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass the request on, or answer 503 and hang up. Only requests that ask for work (POST) delay a shutdown."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: "Message") -> None:
            if message["type"] == "http.response.start":
                self._lifecycle.answers[message["status"]] += 1
            await send(message)

        if (error := self._refusal(scope)) is not None:
            error.headers["connection"] = "close"
            await error_response(error)(scope, receive, counted)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, counted)
            return
        self._lifecycle.enter()
        try:
            await self._app(scope, receive, counted)
        finally:
            self._lifecycle.leave()

    def _refusal(self, scope: "Scope") -> ApiError | None:
        if self._lifecycle.draining and scope["method"] == "POST":
            return unavailable("the server is shutting down: send the request to another one", "draining")
        if (number := self._connections()) > self._max_connections and scope["path"] != "/health":
            return unavailable(
                f"the server has {number} connections, more than the {self._max_connections} that it takes "
                "(--max-connections): try again later",
                "too_many_connections",
            )
        return None
