"""What the engine raises, as answers."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from ..errors import EngineClosedError, EngineDeadError, QueueFullError, RequestError, RequestTimeoutError
from .errors import ApiError, refused


@contextmanager
def as_answers(renamed: Mapping[str, str], known: Collection[str]) -> Iterator[None]:
    """Raise ApiError for the engine's errors; for those of the request with its own names, see `refused`."""
    try:
        yield
    except RequestError as error:
        raise refused(error, renamed, known) from None
    except QueueFullError as error:
        headers = {"retry-after": "1"}
        raise ApiError(
            429, f"{error} (--max-queue)", kind="rate_limit_error", code="rate_limit_exceeded", headers=headers
        ) from None
    except RequestTimeoutError as error:
        raise ApiError(504, str(error), kind="server_error", code="request_timeout") from None
    except EngineDeadError as error:
        raise ApiError(503, str(error), kind="server_error", code="engine_dead") from None
    except EngineClosedError as error:
        raise ApiError(503, str(error), kind="server_error", code="draining", headers={"retry-after": "1"}) from None
