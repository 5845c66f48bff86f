"""Answers of JSON, and the errors among them."""

import json
from typing import Any

from starlette.responses import Response

from .errors import ApiError

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


def to_json(content: Any) -> bytes:
    """JSON in UTF-8; a lone surrogate, which a request may hold, stays the escape that it was."""
    return _encoder.encode(content).encode("utf-8", "backslashreplace")


class JsonResponse(Response):
    """An answer of JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return to_json(content)


def error_response(error: ApiError) -> JsonResponse:
    """An error as a whole answer."""
    return JsonResponse(error.body(), status_code=error.status, headers=error.headers)
