"""What a request gives back, under vLLM's names."""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """An end-of-sequence token, a stop token, or a stop string."""
    LENGTH = "length"
    """max_tokens or the engine's max_seq_len."""
    ABORT = "abort"
    """The caller gave it up, or its step failed."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's natural log probability under the raw logits; `rank` 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(slots=True)
class Metrics:
    """Instants of a request's life, in seconds of `time.perf_counter`, and counts."""

    arrival_time: float
    first_scheduled_time: float | None = None
    token_times: list[float] = field(default_factory=list)
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    """Tokens of the prompt that were in the KV cache when the request first started."""

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival to the first token; None before it."""
        return self.token_times[0] - self.arrival_time if self.token_times else None

    @property
    def inter_token_latencies(self) -> list[float]:
        """Seconds between one token and the next."""
        return [later - earlier for earlier, later in pairwise(self.token_times)]

    @property
    def latency(self) -> float | None:
        """Seconds from arrival to the last token so far."""
        return self.token_times[-1] - self.arrival_time if self.token_times else None


@dataclass(slots=True)
class CompletionOutput:
    """An output, whole or, from `LLM.stream` and `AsyncLLM.generate`, what was added to it.

    `index` tells the `n` outputs of a prompt apart. `logprobs` holds, for each token, the sampled one and the likeliest
    ones by token id. `stop_reason` is the stop string or stop token id that ended the output; None for an
    end-of-sequence token.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    index: int = 0

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum over the sampled tokens; None when logprobs were not asked for."""
        if self.logprobs is None:
            return None
        return sum(entry[token].logprob for token, entry in zip(self.token_ids, self.logprobs, strict=True))


@dataclass(slots=True)
class RequestOutput:
    """A prompt and what came of it; `prompt` is None when the prompt was given as token ids.

    `metrics` are those of the first output. `prompt_logprobs`, where asked for, has for each token of the prompt it and
    the likeliest ones by token id, None for the first; of a stream's pieces the first has them.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: Metrics
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
