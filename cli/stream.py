"""Text on the terminal as it comes, and how fast it came."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..runtime.outputs import CompletionOutput, Metrics
from .terminal import say, write_model_text


@dataclass
class Timing:
    """When a request began and when each of its tokens came, in seconds of `time.perf_counter`."""

    start: float
    token_times: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, metrics: Metrics) -> "Timing":
        return cls(metrics.arrival_time, metrics.token_times)

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token."""
        return self.token_times[0] - self.start if self.token_times else None

    @property
    def tokens_per_second(self) -> float | None:
        """Rate after the first token; None for fewer than two."""
        if len(self.token_times) < 2:
            return None
        return (len(self.token_times) - 1) / (self.token_times[-1] - self.token_times[0])

    @property
    def summary(self) -> str:
        """One line for people."""
        if self.ttft is None:
            return "[no tokens]"
        rate = f", {self.tokens_per_second:.1f} tokens/s" if self.tokens_per_second else ""
        return f"[{len(self.token_times)} tokens, first after {self.ttft * 1e3:.0f} ms{rate}]"


@dataclass
class Streamed(Timing):
    """What a stream gave; `interrupted` by Ctrl-C it is a part of it."""

    text: str = ""
    interrupted: bool = False


def stream(outputs: Iterable[CompletionOutput], *, interruptible: bool = False) -> Streamed:
    """Print each piece of text when it comes. Ctrl-C ends the request, and the program unless `interruptible`."""
    streamed = Streamed(time.perf_counter())
    try:
        for output in outputs:
            streamed.token_times += [time.perf_counter()] * len(output.token_ids)
            streamed.text += output.text
            write_model_text(output.text, end="")
    except KeyboardInterrupt:
        if not interruptible:
            raise
        streamed.interrupted = True
    write_model_text("")
    return streamed


def remark(message: str) -> None:
    """Say something beside the output, on stderr."""
    say(message, dim=True, err=True)


def advise(*words: object) -> None:
    """Remark what to do next: a command, its words quoted for the shell."""
    import shlex  # a command that goes on with nothing need not wait for it

    remark(f"Go on with: {shlex.join(map(str, words))}")


def as_argument(path: Path) -> str:
    """A path as an argument, also one that begins as an option does."""
    return f"./{path}" if str(path).startswith("-") else str(path)
