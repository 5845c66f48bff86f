"""What the step loop asks of whatever runs the network, and the shapes in which it asks.

Token ids and block tables are `array('i')` throughout the runtime: appending is cheap, and a slice is one memory copy.
"""

import math
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..sampling_params import SamplingParams
from ..token_constraint import TokenConstraint

if TYPE_CHECKING:
    import numpy as np


class SequenceSlice(NamedTuple):
    """Tokens `[start, stop)` of one sequence, to be processed in this step.

    `token_ids` and `block_tables` (one a cache group, int32, -1 where a block behind the window was freed) are the
    sequence's own arrays; the tables must reach position `stop - 1`. `slot`, of [0, max_batch_size), holds its states,
    where the engine has any: it must stand at `start` there, or begin, with a `start` of 0.
    """

    token_ids: array
    start: int
    stop: int
    block_tables: Sequence[array]
    slot: int = 0


class SequenceSampling:
    """How one sequence samples, kept for its whole life. `mask` is that of its constraint, for the next draw: 0, or an
    address as `TokenConstraint.mask` gives it. `bad_words` holds sequences of token ids, each after its length.
    """

    __slots__ = (
        "bad_words", "bans_stop_tokens", "bias_tokens", "bias_values", "constraint", "looks_back", "mask", "params",
        "prompt_length", "seed", "token_ids",
    )  # fmt: skip

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        token_ids: array,
        prompt_length: int,
        bad_words: Sequence[Sequence[int]] = (),
        constraint: TokenConstraint | None = None,
    ) -> None:
        self.params = params
        self.seed = seed
        self.token_ids = token_ids
        self.prompt_length = prompt_length
        self.bad_words = array("i", [n for word in bad_words for n in (len(word), *word)]) if bad_words else None
        self.constraint = constraint
        self.mask = 0
        self.looks_back = bool(params.has_penalties or params.no_repeat_ngram_size or bad_words)
        self.set_bias(ban=())

    def set_bias(self, ban: Collection[int]) -> None:
        """Add the request's logit bias from now on, and never draw the tokens of `ban`."""
        bias = dict(self.params.logit_bias or {}) | dict.fromkeys(ban, -math.inf)
        self.bias_tokens = array("i", bias.keys()) if bias else None
        self.bias_values = array("f", bias.values()) if bias else None
        self.bans_stop_tokens = bool(ban)


class Draw(NamedTuple):
    """A token to draw from a row of logits of the last step; a sequence may have several, from rows of its own.

    `row` is an index into the step's `logits_rows`. The token follows the first `length` tokens of the sequence, which
    are its history, and say which number of its generator it takes. With a `token`, nothing is drawn: that one is
    reported on. `num_logprobs`: of the token and of so many of the best; -1: none.
    """

    row: int
    sampling: SequenceSampling
    length: int
    token: int = -1
    num_logprobs: int = -1


class Sample(NamedTuple):
    """A token drawn or reported on; where asked for, its log probability under the raw logits, its rank, 1 is best, and
    the best.
    """

    token: int
    logprob: float | None = None
    rank: int | None = None
    top: tuple[tuple[int, float], ...] = ()


class Executor(Protocol):
    """Runs steps of the network. Calls come from one thread at a time. All methods raise EngineError on a fault."""

    def warm_up(self) -> None:
        """Do before the first step what the first ones would wait for."""
        ...

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        """Process the slices, packed into T tokens; keep the logits of `logits_rows`.

        Those are ascending, in [0, T), of a slice any number, in all at most max_logits_rows.
        May return before that is done; a fault is then raised by the next call that waits for it.
        """
        ...

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        """One token for each draw, in order."""
        ...

    def logits(self) -> "np.ndarray":
        """A copy of the last step's logits, float32 [R, vocab_size]."""
        ...

    def close(self) -> None:
        """Free what the executor holds; a second call does nothing."""
        ...
