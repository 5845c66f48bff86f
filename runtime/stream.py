"""What comes of a request, from the thread that steps the engine to whoever asked for it."""

from collections.abc import Callable, Sequence

from ..errors import EngineError, EnginesmithError
from .outputs import CompletionOutput, Logprob, RequestOutput
from .request import NOTHING, Progress, Request

Notify = Callable[["list[RequestStream]"], None]
"""Called on the engine's thread, once a step, with the streams that have something new: it must be quick."""


def ignore(streams: "list[RequestStream]") -> None:
    """Follow nothing."""


class RequestStream:
    """A prompt and its `n` sequences. The engine's thread writes to them, one other thread takes what is new.

    `notify` is called when there is something to take; with `final_only`, once the last sequence is finished.
    """

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        requests: Sequence[Request],
        notify: Notify,
        *,
        final_only: bool = False,
    ) -> None:
        self.request_id = request_id
        self.requests = requests
        self.notify = notify
        self.final_only = final_only
        first = requests[0]
        self._prompt = prompt
        self._prompt_token_ids: list[int] = first.token_ids[: first.prompt_length].tolist()
        self._taken = [NOTHING] * len(requests)
        self._has_begun = False

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return all(request.progress.finish_reason for request in self.requests)

    @property
    def progress(self) -> tuple[Progress, ...]:
        """How far each sequence is."""
        return tuple(request.progress for request in self.requests)

    def take(self, until: Sequence[Progress] | None = None) -> RequestOutput | None:
        """What was added since the last call, an output for each sequence that has something; None if none has.

        `until`: what `progress` was at an instant; None is now.

        Raises what ended the request, once all that came before was taken.
        """
        outputs = []
        for index, (request, reached) in enumerate(zip(self.requests, until or self.progress, strict=True)):
            since, end = self._taken[index], reached if request.error is None else reached._replace(finish_reason=None)
            if end != since:
                self._taken[index] = end
                outputs.append(request.output(since, end))
        if outputs:
            prompt_logprobs = None if self._has_begun else self.requests[0].prompt_logprobs
            self._has_begun = True
            return self._result(outputs, all(taken.finish_reason for taken in self._taken), prompt_logprobs)
        self._raise_failure()
        return None

    def whole(self) -> RequestOutput:
        """All of it, once it is finished. Raises what ended the request."""
        self._raise_failure()
        outputs = [request.output() for request in self.requests]
        return self._result(outputs, self.finished, self.requests[0].prompt_logprobs)

    def _result(
        self,
        outputs: list[CompletionOutput],
        finished: bool,
        prompt_logprobs: list[dict[int, Logprob] | None] | None,
    ) -> RequestOutput:
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=outputs,
            finished=finished,
            metrics=self.requests[0].metrics,
            prompt_logprobs=prompt_logprobs,
        )

    def _raise_failure(self) -> None:
        for error in (request.error for request in self.requests):
            if isinstance(error, EnginesmithError):
                raise error
            if error is not None:
                raise EngineError(f"request {self.request_id} failed: {error!r}") from error
