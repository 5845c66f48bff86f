"""Every error a user can meet. Each message says what was wrong, where, the limit, the value found, and what to do."""

import reprlib
from collections.abc import Iterable

_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxother, _brief.maxlong = 2, 80, 80, 80


def shown(value: object) -> str:
    """A value as a message shows it: the beginning of a long one, however deep, wide or self-containing it is."""
    try:
        return _brief.repr(value)
    except ValueError:  # Python prints no integer of more than 4300 digits
        return "an integer too long to show"


def reason(error: BaseException) -> str:
    """What another library's error says, as a message shows it: on one line, of at most 300 characters."""
    line = " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= 300 else line[:297] + "..."


def cannot_read(path: object, error: OSError) -> str:
    """What a message says of a file or folder that could not be read; a want of permission is called that."""
    if isinstance(error, PermissionError):
        return f"{shown_path(path)}: no permission to read it; change its permissions, or those of its folder"
    return f"{shown_path(path)}: cannot be read: {error.strerror or error}"


def shown_path(path: object) -> str:
    """A path as a message shows it: the beginning of one that is longer than any file system takes."""
    text = str(path)
    return text if len(text) <= 1024 else text[:200] + "..."


def listed(items: Iterable[str], most: int = 10) -> str:
    """Names as a message lists them: the first few, and how many more there are."""
    names = list(items)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name if len(name) <= 120 else name[:117] + "..." for name in names[:most]) + more


class EnginesmithError(Exception):
    """Base of all errors that are the user's to fix. The CLI prints the message and exits with code 2."""


class CacheError(EnginesmithError):
    """The cache cannot be written, belongs to somebody else, or can be written by others."""


class CheckpointError(EnginesmithError):
    """A checkpoint is absent, damaged, incomplete, or of a form we do not read."""


class UnsupportedModelError(EnginesmithError):
    """A model needs an operation that the builder or the target lacks; the message names it."""


class BuildError(EnginesmithError):
    """A build could not be finished: a bad option, a full disk, or an engine that failed its check."""


class OptionError(BuildError):
    """An option that does not exist, a value that it cannot have, or options that contradict each other.

    `field`: the option's name; None where it is not one alone.
    """

    def __init__(self, reason: str, field: str | None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason, self.field = reason, field


class ToolchainError(BuildError):
    """No usable C++ compiler, or the compiler refused the generated source."""


class EvaluationError(EnginesmithError):
    """An evaluation that cannot be made: too short a text, models that cannot be compared, a missing library."""


class EngineError(EnginesmithError):
    """An engine folder is damaged, of another format version, or needs an instruction set this machine lacks."""


class EngineClosedError(EngineError):
    """The engine takes no more requests: it was closed, is draining, or belongs to the process that forked this one."""


class EngineDeadError(EngineClosedError):
    """The thread that steps the engine has ended by a fault of its own; the engine must be opened again."""


class RequestError(EnginesmithError, ValueError):
    """A request that cannot be served: a parameter out of range, a prompt too long, a token id out of range."""


class ParameterError(RequestError):
    """A parameter of a request that cannot be: `parameter` is its path, as in "tools[0].function.name"."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter, self.reason = parameter, reason


class QueueFullError(EnginesmithError):
    """As many requests wait as may, `limit`; this one may be sent again later."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} requests are waiting already, the most that may: send this one again later")
        self.limit = limit


class RequestTimeoutError(EnginesmithError):
    """A request was not finished within its timeout."""


class ChatTemplateError(RequestError):
    """A chat template cannot be read, does not compile, refuses a conversation, or takes too much time or memory."""


class ServeError(EnginesmithError):
    """A server that cannot start: an address that is taken, a file of keys that holds none."""


class RecipeError(EnginesmithError):
    """A recipe with an unknown key, a bad value, or a step that failed."""
