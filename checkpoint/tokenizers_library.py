"""Calls into the `tokenizers` library, which raises bare exceptions, and panics that are not even those."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import EnginesmithError

_MAX_COMPLAINT = 500


@contextmanager
def library_errors(ours: Callable[[str], EnginesmithError]) -> Iterator[None]:
    """Around a call: whatever the library, or Transformers around it, raises becomes the error that `ours` makes of
    its message. A panic of Rust's derives from BaseException; an interrupt does too, and passes.
    """
    try:
        yield
    except EnginesmithError:
        raise
    except Exception as error:
        raise ours(_message(error)) from None
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise ours(_message(error)) from None


def _message(error: BaseException) -> str:
    return str(error)[:_MAX_COMPLAINT] or type(error).__name__
