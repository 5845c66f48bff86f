"""Which tokens may come next in one output."""

from typing import TYPE_CHECKING

import numpy as np

from ...errors import RequestError, reason

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarConstraint:
    """Holds one output to a grammar. What it allows is a function of the output's tokens alone.

    An end-of-sequence token is allowed exactly where the output is complete. Raises RequestError where a grammar proves
    too complex for the bounds of the matcher.
    """

    def __init__(self, matcher: "LLMatcher", vocab_size: int) -> None:
        """`matcher`: nobody else's, at the beginning of an output. The first mask is computed here, the dearest one."""
        self._matcher = matcher
        self._mask = np.zeros(-(-vocab_size // 32), np.uint32)
        self._address, self._bytes = self._mask.ctypes.data, self._mask.nbytes
        self._compute()

    def mask(self) -> int:
        """Address of uint32 [ceil(vocab_size / 32)]: bit t % 32 of word t // 32 is set where token t may come next.

        It holds until `accept`.
        """
        if self._stale:
            self._compute()
        return self._address

    def accept(self, token: int) -> None:
        """The token that came."""
        self._stale = True
        if not self._matcher.consume_token(token):
            self._fail()

    def _compute(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._address, self._bytes)
        if self._matcher.is_error():
            self._fail()
        self._stale = False

    def _fail(self) -> None:
        error = self._matcher.get_error()
        if error.startswith("NoExtension") or "doesn't satisfy the grammar" in error:  # masks allow nothing else
            raise RequestError("structured_outputs: no token of this model's spells what the grammar asks for next")
        raise RequestError(f"structured_outputs: the grammar is too complex: {reason(RuntimeError(error))}")
