"""API keys: every route but /health wants `Authorization: Bearer KEY`, and so does what the page at / shows."""

import hashlib
import hmac
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ServeError, cannot_read
from .page.files import FILES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ENVIRONMENT = "ENGINESMITH_API_KEY"
_OPEN = {"/health", *FILES}


def read_keys(path: str | None) -> tuple[str, ...]:
    """The keys of a file, one a line, and of the environment. Raises ServeError for a file without any."""
    keys = [key for key in [os.environ.get(ENVIRONMENT, "").strip()] if key]
    if path is not None:
        try:
            found = Path(path).read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise ServeError(f"--api-key-file {cannot_read(path, error)}") from None
        except UnicodeDecodeError:
            raise ServeError(f"--api-key-file {path}: is not UTF-8 text; put one key on a line") from None
        found = [key.strip() for key in found if key.strip()]
        if not found:
            raise ServeError(f"--api-key-file {path}: holds no key; put one on a line, or leave the option out")
        keys += found
    return tuple(dict.fromkeys(keys))


class ApiKeys:
    """Whether a request carries one of the keys, found out in a time that does not depend on how much of it is right.

    Digests are compared, so that nor does it depend on a key's length.
    """

    def __init__(self, keys: Collection[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admit(self, authorization: bytes) -> bool:
        """Whether the value of that header is good."""
        scheme, _, key = authorization.partition(b" ")
        given = hashlib.sha256(key.strip()).digest()
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]  # all of them, whichever is right
        return scheme.lower() == b"bearer" and any(matches)


class Authentication:
    """The ASGI middleware that asks for a key."""

    def __init__(self, app: "ASGIApp", keys: ApiKeys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in _OPEN and not self._keys.admit(_authorization(scope)):
            from .errors import ApiError
            from .json_response import error_response

            headers = {"www-authenticate": "Bearer"}
            error = ApiError(
                401,
                "this server wants an API key: send the header Authorization: Bearer KEY, with one that it knows",
                code="invalid_api_key",
                headers=headers,
            )
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _authorization(scope: "Scope") -> bytes:
    return next((value for name, value in scope["headers"] if name == b"authorization"), b"")
