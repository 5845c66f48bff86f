"""When an output ends, and how much of its text may be shown meanwhile."""

from collections.abc import Collection, Sequence

from .detokenizer import Detokenizer
from .outputs import FinishReason
from .sampling_params import SamplingParams


class StopStrings:
    """Finds the stop string that is complete first, read character by character, however the text is cut into pieces.

    Text that may be the beginning of a stop string is held back until that is decided.
    """

    def __init__(self, strings: Sequence[str], include: bool = False) -> None:
        self._strings = strings
        self._include = include
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Text that may be shown now. Once `matched` is set, all that may be shown has been."""
        if not self._strings or not text:
            return text
        text = self._held + text
        self._held = ""
        hits = [(at + len(stop), at, stop) for stop in self._strings if (at := text.find(stop)) >= 0]
        if hits:
            end, begin, self.matched = min(hits)
            return text[: end if self._include else begin]
        shown = len(text) - self._possible_beginning(text)
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string begins with."""
        longest = min(len(text), max(map(len, self._strings)) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._strings):
                return length
        return 0


class OutputText:
    """Turns sampled tokens into shown text and notices the end of the output.

    Stop tokens and strings count from the `min_tokens`-th token on. The text of a token that ends the output is shown
    only with `include_stop_str_in_output`.
    """

    def __init__(
        self,
        params: SamplingParams,
        detokenizer: Detokenizer,
        eos_token_ids: Collection[int],
        max_output_tokens: int,
    ) -> None:
        self._params = params
        self._detokenizer = detokenizer
        self._strings = StopStrings(params.stop_strings, params.include_stop_str_in_output)
        self._eos = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self.stop_tokens = self._eos | frozenset(params.stop_token_ids)
        self._max_output_tokens = max_output_tokens
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None

    def push(self, token: int, num_output: int) -> str:
        """Text to show for the `num_output`-th output token (from 1); sets `finish_reason` when it is the last."""
        may_stop = num_output >= self._params.min_tokens
        stops = may_stop and token in self.stop_tokens
        text = "" if stops and not self._params.include_stop_str_in_output else self._detokenizer.push(token)
        if stops:
            self._finish(FinishReason.STOP, None if token in self._eos else token)
        elif num_output >= self._max_output_tokens:
            self._finish(FinishReason.LENGTH)
        if self.finish_reason:
            text += self._detokenizer.flush()
        if may_stop:
            text = self._match(text)
        return text

    def _match(self, text: str) -> str:
        text = self._strings.push(text)
        if self._strings.matched is not None:
            self._finish(FinishReason.STOP, self._strings.matched)
        elif self.finish_reason:
            text += self._strings.flush()
        return text

    def _finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        self.finish_reason, self.stop_reason = reason, stop_reason
