"""From what requests ask for to the constraints of their outputs, for one engine."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ...errors import ParameterError, reason
from ..tokenizer import Tokenizer
from .constraint import GrammarConstraint
from .grammar_process import LIMITS, grammar_process
from .params import MAX_GRAMMAR_BYTES, GrammarSource, StructuredOutputsParams
from .vocabulary import make_vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_KEPT = 256
_MAX_KEPT_BYTES = 4 * MAX_GRAMMAR_BYTES
_MAX_KEPT_SECONDS = 10.0  # of compiling: what takes long takes memory, some 50 MB a second


class GrammarCompiler:
    """Compiles grammars, and keeps what was used last. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[GrammarSource, LLMatcher] = OrderedDict()
        self._seconds: dict[GrammarSource, float] = {}  # that they took, of a processor
        self._lock = threading.Lock()

    def compile(self, params: StructuredOutputsParams) -> Callable[[], GrammarConstraint]:
        """What makes the constraint of a new output. Raises ParameterError for what cannot be compiled within bounds of
        time and memory, RequestError where the library or the engine's tokenizer is missing.

        Takes milliseconds, some hundred more for the first, up to seconds for what is refused at last.
        """
        source = params.source
        with self._lock:
            matcher = self._kept.get(source)
            if matcher is not None:
                self._kept.move_to_end(source)
            elif self._vocabulary is None:
                self._vocabulary = make_vocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)
            vocabulary = self._vocabulary
        if matcher is None:
            assert vocabulary is not None
            matcher = self._compile(source, vocabulary)
        compiled = matcher
        return lambda: GrammarConstraint(compiled.deep_copy(), self._vocab_size)

    def _compile(self, source: GrammarSource, vocabulary: "LLTokenizer") -> "LLMatcher":
        """Outside the lock: others need not wait."""
        from llguidance import LLMatcher, LLParserLimits

        grammar = grammar_process.grammar(source)
        limits = LLParserLimits(**LIMITS, verbose_errors=False)
        began = time.thread_time()
        matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
        matcher.compute_bitmask()  # kept for the copies; some grammars prove too complex in it
        if error := matcher.get_error():
            complaint = f"cannot be compiled: {reason(RuntimeError(error))}"
            raise ParameterError(f"structured_outputs.{source.kind}", complaint)
        with self._lock:
            self._kept[source], self._seconds[source] = matcher, time.thread_time() - began
            while self._keeps_too_much():
                del self._seconds[self._kept.popitem(last=False)[0]]
        return matcher

    def _keeps_too_much(self) -> bool:
        if len(self._kept) > _MAX_KEPT or sum(len(kept.text) for kept in self._kept) > _MAX_KEPT_BYTES:
            return True
        return len(self._kept) > 1 and sum(self._seconds.values()) > _MAX_KEPT_SECONDS
