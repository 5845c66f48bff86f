"""A request on its way through the engine."""

from array import array
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from .executors.executor import Draw, Sample, SequenceSampling
from .kv_cache.manager import SequenceBlocks
from .outputs import CompletionOutput, FinishReason, Logprob, Metrics
from .stopping import OutputText
from .tokenizer import Tokenizer


class Status(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Progress(NamedTuple):
    """How much of a request's output may be looked at by other threads than the one that steps the engine."""

    num_output: int = 0
    num_characters: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


NOTHING = Progress()


class Request:
    """A sequence, its blocks, and what has come out of it. `admission.Admission` makes them, valid.

    The thread that steps the engine alone changes it. `token_ids`, `text` and `logprobs` only grow, and what `progress`
    covers of them can be read meanwhile.
    """

    __slots__ = (
        "blocks", "deadline", "error", "finish_reason", "index", "logprobs", "max_total_tokens", "metrics",
        "num_computed", "output_text", "progress", "prompt_length", "prompt_logprobs", "queue_key", "request_id",
        "sampling", "status", "stop_reason", "text", "timeout", "token_ids", "tokenizer",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        sampling: SequenceSampling,
        blocks: SequenceBlocks,
        output_text: OutputText,
        tokenizer: Tokenizer,
        metrics: Metrics,
        *,
        max_total_tokens: int,
        request_id: str = "",
        index: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        self.queue_key = (priority, number)
        self.request_id = request_id
        self.index = index
        """Which of the outputs of its prompt this is."""
        self.prompt_length = sampling.prompt_length
        self.token_ids: array = sampling.token_ids
        """Prompt, then output."""
        self.max_total_tokens = max_total_tokens
        """Prompt and longest possible output."""
        self.num_computed = 0
        """Tokens whose keys and values are in the cache."""
        self.blocks = blocks
        self.sampling = sampling
        self.output_text = output_text
        self.tokenizer = tokenizer
        self.metrics = metrics
        self.timeout = timeout
        self.deadline = None if timeout is None else metrics.arrival_time + timeout
        self.status = Status.WAITING
        self.text = ""
        """Output text that may be shown."""
        self.logprobs: list[dict[int, Logprob]] | None = None if sampling.params.logprobs is None else []
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        """So far; of the first of a prompt's sequences, where asked for."""
        if sampling.params.prompt_logprobs is not None and index == 0:
            self.prompt_logprobs = [None]
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.error: Exception | None = None
        self.progress = NOTHING

    @property
    def num_pending(self) -> int:
        """Tokens still to process before the next one can be drawn."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_output(self) -> int:
        """Output tokens so far."""
        return len(self.token_ids) - self.prompt_length

    @property
    def first_row(self) -> int:
        """The first token whose row of logits is wanted, as are those of all after it."""
        done = None if self.prompt_logprobs is None else len(self.prompt_logprobs)
        return len(self.token_ids) - 1 if done is None or done == self.prompt_length else done - 1

    @property
    def finished(self) -> bool:
        return self.status is Status.FINISHED

    def append(self, sample: Sample, now: float) -> None:
        """Take a sampled token, drawn at `now`. Sets `finish_reason` when it is the last."""
        if self.logprobs is not None:
            self.logprobs.append(self._logprobs_of(sample))
        self.metrics.token_times.append(now)
        self.token_ids.append(sample.token)
        self.text += self.output_text.push(sample.token, self.num_output)
        if self.output_text.finish_reason:
            self.finish_reason, self.stop_reason = self.output_text.finish_reason, self.output_text.stop_reason
        if self.sampling.bans_stop_tokens and self.num_output >= self.sampling.params.min_tokens:
            self.sampling.set_bias(ban=())
        if self.sampling.constraint is not None:
            self.sampling.constraint.accept(sample.token)

    def draw(self, row: int, position: int) -> Draw:
        """What the row of logits of the token at `position` is for: to report on the next token, or to draw it."""
        params, length = self.sampling.params, position + 1
        if length < self.prompt_length:
            assert params.prompt_logprobs is not None
            return Draw(row, self.sampling, length, self.token_ids[length], params.prompt_logprobs)
        return Draw(row, self.sampling, length, -1, -1 if params.logprobs is None else params.logprobs)

    def append_prompt(self, samples: Sequence[Sample]) -> None:
        """Take what the next tokens of the prompt are reported with."""
        if self.prompt_logprobs is not None:
            self.prompt_logprobs += [self._logprobs_of(sample) for sample in samples]

    def publish(self) -> bool:
        """Let other threads see what there is now; whether that is more than before."""
        before, self.progress = self.progress, self._now()
        return self.progress != before

    def output(self, since: Progress = NOTHING, until: Progress | None = None) -> CompletionOutput:
        """The output, or what was added to it between two instants; `until` None is now."""
        end = self._now() if until is None else until
        tokens = slice(self.prompt_length + since.num_output, self.prompt_length + end.num_output)
        logprobs = None if self.logprobs is None else self.logprobs[since.num_output : end.num_output]
        return CompletionOutput(
            text=self.text[since.num_characters : end.num_characters],
            token_ids=self.token_ids[tokens].tolist(),
            finish_reason=end.finish_reason,
            stop_reason=end.stop_reason,
            logprobs=logprobs,
            index=self.index,
        )

    def _now(self) -> Progress:
        return Progress(self.num_output, len(self.text), self.finish_reason, self.stop_reason)

    def _logprobs_of(self, sample: Sample) -> dict[int, Logprob]:
        """The sampled token and the likeliest ones."""
        decode = self.tokenizer.decode_token
        entries = {token: Logprob(value, rank, decode(token)) for rank, (token, value) in enumerate(sample.top, 1)}
        if sample.token not in entries and sample.logprob is not None and sample.rank is not None:
            entries[sample.token] = Logprob(sample.logprob, sample.rank, decode(sample.token))
        return entries
