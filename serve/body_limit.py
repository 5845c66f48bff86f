"""A cap on the size of bodies."""

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """The ASGI middleware that reads no more of a body than `most` bytes; the rest is answered 413.

    (The framework's own answers in plain text.)
    """

    def __init__(self, app: "ASGIApp", most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass the request on; whoever reads too much of it gets the error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read, said = 0, _content_length(scope)

        async def limited() -> "Message":
            nonlocal read
            if said > self._most:
                raise HTTPException(413, headers={"connection": "close"})
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, headers={"connection": "close"})
            return message

        await self._app(scope, limited, send)


def _content_length(scope: "Scope") -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() else 0
