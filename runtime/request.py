"""A request on its way through the engine."""

from array import array
from enum import Enum

from .executors.executor import Sample, SampleRow
from .kv_cache.manager import SequenceBlocks
from .outputs import CompletionOutput, FinishReason, Logprob, Metrics, RequestOutput
from .stopping import OutputText
from .tokenizer import Tokenizer


class Status(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """A sequence, its blocks, and what has come out of it. `admission.Admission` makes them, valid."""

    __slots__ = (
        "blocks", "error", "finish_reason", "logprobs", "max_total_tokens", "metrics", "num_computed", "output_text",
        "prompt", "prompt_length", "queue_key", "request_id", "sample_row", "status", "stop_reason", "text",
        "token_ids", "tokenizer",
    )  # fmt: skip

    def __init__(
        self,
        request_id: int,
        sample_row: SampleRow,
        blocks: SequenceBlocks,
        output_text: OutputText,
        tokenizer: Tokenizer,
        metrics: Metrics,
        *,
        max_total_tokens: int,
        priority: int = 0,
        prompt: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.queue_key = (priority, request_id)
        self.prompt = prompt
        self.prompt_length = sample_row.prompt_length
        self.token_ids: array = sample_row.token_ids
        """Prompt, then output."""
        self.max_total_tokens = max_total_tokens
        """Prompt and longest possible output."""
        self.num_computed = 0
        """Tokens whose keys and values are in the cache."""
        self.blocks = blocks
        self.sample_row = sample_row
        self.output_text = output_text
        self.tokenizer = tokenizer
        self.metrics = metrics
        self.status = Status.WAITING
        self.text = ""
        """Output text that may be shown."""
        self.logprobs: list[dict[int, Logprob]] | None = None if sample_row.params.logprobs is None else []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.error: Exception | None = None

    @property
    def num_pending(self) -> int:
        """Tokens still to process before the next one can be drawn."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_output(self) -> int:
        """Output tokens so far."""
        return len(self.token_ids) - self.prompt_length

    @property
    def finished(self) -> bool:
        return self.status is Status.FINISHED

    def append(self, sample: Sample, now: float) -> None:
        """Take a sampled token, drawn at `now`. Sets `finish_reason` when it is the last."""
        if self.logprobs is not None:
            self.logprobs.append(self._logprobs_of(sample))
        self.metrics.token_times.append(now)
        self.token_ids.append(sample.token)  # now it is taken: `restore` drops what came before, makes what comes after
        self._show(sample.token, self.num_output)

    def restore(self) -> None:
        """After an interrupt anywhere: drop what there is of a token not taken, make the text of the others again."""
        del self.metrics.token_times[self.num_output :]
        if self.logprobs is not None:
            del self.logprobs[self.num_output :]
        self.text = ""
        self.output_text.reset()
        for number, token in enumerate(self.token_ids[self.prompt_length :], 1):
            self._show(token, number)

    def output(self, from_token: int = 0, from_character: int = 0) -> CompletionOutput:
        """The output, or what was added to it since."""
        return CompletionOutput(
            text=self.text[from_character:],
            token_ids=self.token_ids[self.prompt_length + from_token :].tolist(),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=None if self.logprobs is None else self.logprobs[from_token:],
        )

    def result(self) -> RequestOutput:
        """The whole of the request as its caller sees it."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.token_ids[: self.prompt_length].tolist(),
            outputs=[self.output()],
            finished=self.finished,
            metrics=self.metrics,
        )

    def _show(self, token: int, number: int) -> None:
        """Add the text of the `number`-th output token, from 1, and look whether it is the last."""
        self.text += self.output_text.push(token, number)
        if self.output_text.finish_reason:
            self.finish_reason, self.stop_reason = self.output_text.finish_reason, self.output_text.stop_reason
        if self.sample_row.bans_stop_tokens and number >= self.sample_row.params.min_tokens:
            self.sample_row.set_bias(ban=())

    def _logprobs_of(self, sample: Sample) -> dict[int, Logprob]:
        """The sampled token and the likeliest ones."""
        decode = self.tokenizer.decode_token
        entries = {token: Logprob(value, rank, decode(token)) for rank, (token, value) in enumerate(sample.top, 1)}
        if sample.token not in entries and sample.logprob is not None and sample.rank is not None:
            entries[sample.token] = Logprob(sample.logprob, sample.rank, decode(sample.token))
        return entries
