"""What the step loop asks of whatever runs the network, and the shapes in which it asks.

Token ids and block tables are `array('i')` throughout the runtime: appending is cheap, and a slice is one memory copy.
"""

import math
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..sampling_params import SamplingParams

if TYPE_CHECKING:
    import numpy as np


class SequenceSlice(NamedTuple):
    """Tokens `[start, stop)` of one sequence, to be processed in this step.

    `token_ids` and `block_tables` (one a cache group, int32, -1 where a block behind the window was freed) are the
    sequence's own arrays; the tables must reach position `stop - 1`.
    """

    token_ids: array
    start: int
    stop: int
    block_tables: Sequence[array]


class SampleRow:
    """How one sequence samples, kept for its whole life. The output token being drawn is its generator's counter."""

    __slots__ = ("bans_stop_tokens", "bias_tokens", "bias_values", "params", "prompt_length", "seed", "token_ids")

    def __init__(self, params: SamplingParams, seed: int, token_ids: array, prompt_length: int) -> None:
        self.params = params
        self.seed = seed
        self.token_ids = token_ids
        self.prompt_length = prompt_length
        self.set_bias(ban=())

    def set_bias(self, ban: Collection[int]) -> None:
        """Add the request's logit bias from now on, and never draw the tokens of `ban`."""
        bias = dict(self.params.logit_bias or {}) | dict.fromkeys(ban, -math.inf)
        self.bias_tokens = array("i", bias.keys()) if bias else None
        self.bias_values = array("f", bias.values()) if bias else None
        self.bans_stop_tokens = bool(ban)  # last: while it is set, the ban may be lifted again


class Sample(NamedTuple):
    """A sampled token; where asked for, its log probability under the raw logits, its rank (1 is best), the best."""

    token: int
    logprob: float | None = None
    rank: int | None = None
    top: tuple[tuple[int, float], ...] = ()


class Executor(Protocol):
    """Runs steps of the network. Calls come from one thread at a time. All methods raise EngineError on a fault."""

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        """Process the slices, packed into T tokens; keep the logits of `logits_rows` (ascending, in [0, T))."""
        ...

    def sample(self, rows: Sequence[SampleRow]) -> list[Sample]:
        """One token for each row of logits of the last step, in order."""
        ...

    def logits(self) -> "np.ndarray":
        """A copy of the last step's logits, float32 [R, vocab_size]."""
        ...

    def close(self) -> None:
        """Free what the executor holds; a second call does nothing."""
        ...
