"""A conversation on the terminal."""

import contextlib
import sys
from typing import Any

from ..errors import RequestError
from ..runtime.llm import LLM
from ..runtime.sampling_params import SamplingParams
from .stream import remark, stream
from .terminal import say

_LONGEST_LINE = 1 << 24
_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


def converse(llm: LLM, params: SamplingParams, opening: list[dict[str, str]]) -> None:
    """Turns of user and model until /exit or the end of input. `opening` holds the system message, if any."""
    if llm.tokenizer.chat_template is None:
        raise RequestError("this model has no chat template, so it cannot hold a conversation: use -p without --chat")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and history
    remark(f"{llm.manifest.model.name}. {_HELP}")
    messages: list[dict[str, Any]] = list(opening)
    while (line := _next_line()) is not None:
        match line.strip():
            case "":
                continue
            case "/exit" | "/quit":
                return
            case "/clear":
                messages = list(opening)
            case "/help":
                remark(_HELP)
            case _:
                messages = _turn(llm, params, [*messages, {"role": "user", "content": line}])


def _turn(llm: LLM, params: SamplingParams, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with the model's answer, or without the last question when it cannot be served."""
    try:
        answer = stream(llm.stream_chat(messages, params), interruptible=True)
    except RequestError as error:
        say(f"error: {error} (or /clear)", fg="red", err=True)
        return messages[:-1]
    remark("[stopped]" if answer.interrupted else answer.summary)
    return [*messages, {"role": "assistant", "content": answer.text}]


def _next_line() -> str | None:
    """A line of input; None at its end. Ctrl-C drops the line that is being typed on a terminal."""
    while True:
        try:
            if sys.stdin is None:  # the shell closed it
                return None
            if sys.stdin.isatty():
                return input("> ")
            line = sys.stdin.readline(_LONGEST_LINE)
            if len(line) == _LONGEST_LINE:
                raise RequestError(f"a line of standard input has {_LONGEST_LINE} characters or more, too many to ask")
            return line.removesuffix("\n") if line else None
        except UnicodeDecodeError as error:
            raise RequestError(f"input is not text in {error.encoding}: {error.reason} at {error.start}") from None
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            if sys.stdin is None or not sys.stdin.isatty():
                raise
            print()
