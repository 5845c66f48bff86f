"""What goes wrong with a request, in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import ParameterError, RequestError, shown

_NAMED = re.compile(r"(?:prompt|[a-z][a-z0-9_]*)(?=[\[:. (]|'s )")
_TYPE_OF_UNION = re.compile(r"(?:str|int|float|bool|list|dict|nullable)\b(?:\[.*)?|function-.*")


class ApiError(Exception):
    """A request that is answered with an error. `param` is the field at fault, of OpenAI's names."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param, self.code = status, message, kind, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON of the answer, or of an event in a stream that breaks off."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def unavailable(message: str, code: str, seconds: int = 1) -> ApiError:
    """503: not now, or not any more."""
    return ApiError(503, message, kind="server_error", code=code, headers={"retry-after": str(seconds)})


def internal() -> ApiError:
    """500: a fault of ours, which the log tells."""
    return ApiError(500, "the server failed on this request; its log says how", kind="server_error", code="internal")


def refused(error: RequestError, renamed: Mapping[str, str], known: Collection[str]) -> ApiError:
    """400 for what the engine refuses: its messages begin with the parameter, by the engine's name for it.

    `renamed`: what the request calls it, where that differs, and under "" what messages are about that name none.
    `known`: the fields of the request.
    """
    message = str(error)
    if isinstance(error, ParameterError):
        root = re.split(r"[.\[]", error.parameter)[0]
        param = renamed.get(root, error.parameter)
        return ApiError(400, f"{param}: {error.reason}", param=param)
    named = _NAMED.match(message)
    name = named[0] if named else ""
    param = renamed.get(name, name)
    if name in renamed and name != "prompt":
        message = param + message[len(name) :]
    return ApiError(400, message, param=param if param in known else renamed.get(""))


def malformed(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """400 for a body that is no JSON, or whose fields have other types than they should."""
    first = problems[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ParameterError):
        return ApiError(400, str(cause), param=cause.parameter)
    path = [part for part in first["loc"][1:] if not (isinstance(part, str) and _TYPE_OF_UNION.fullmatch(part))]
    if not path:
        return ApiError(
            400, "the body must be a JSON object, sent as Content-Type: application/json; got " + shown(first["input"])
        )
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")[:200]
    if first["type"] == "missing":
        return ApiError(400, f"{param} is missing: this field is required", param=param)
    same = [problem for problem in problems if problem["loc"][1:2] == first["loc"][1:2]]
    wanted = " or ".join(dict.fromkeys(_reason(problem) for problem in same))
    return ApiError(400, f"{param}: {wanted}, got {shown(first['input'])}", param=param)


def _reason(problem: Mapping[str, Any]) -> str:
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text.replace("Input should be", "must be").replace("Field required", "a field is missing")
