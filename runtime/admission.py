"""From what a caller asks to a request the engine can serve: every limit is checked here, before anything is queued."""

import math
import os
import time
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import count
from operator import index
from typing import TYPE_CHECKING

from ..errors import RequestError, shown
from .detokenizer import Detokenizer
from .executors.executor import SequenceSampling
from .kv_cache.eviction import Retention
from .kv_cache.manager import KvCacheManager
from .manifest import Manifest
from .outputs import Metrics
from .request import Request
from .sampling_params import SamplingParams
from .stopping import OutputText
from .stream import Notify, RequestStream, ignore
from .token_constraint import TokenConstraint
from .tokenizer import NoTokenizer, Tokenizer

if TYPE_CHECKING:
    from .structured_output.compiler import GrammarCompiler

_UINT64 = 2**64 - 1
_LONG_TOKEN = 32  # characters; a prompt of shorter ones is tokenized


class Admission:
    """Makes requests for one engine, numbered in the order of their arrival."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, kv: KvCacheManager) -> None:
        self._vocab_size = manifest.model.vocab_size
        self._eos_token_ids = frozenset(token for token in manifest.model.eos_token_ids if token < self._vocab_size)
        self._max_seq_len = manifest.limits.max_seq_len
        self._advised_max_tokens = manifest.model.generation_defaults.get("max_tokens")
        self._max_positions = manifest.model.max_positions
        self._tokenizer = tokenizer
        self._kv = kv
        self._numbers, self._sequence_numbers = count(), count()

    @cached_property
    def forms(self) -> "GrammarCompiler":
        """Compiles the forms that outputs are held to."""
        from .structured_output.compiler import GrammarCompiler

        return GrammarCompiler(self._tokenizer, self._vocab_size, self._eos_token_ids)

    def admit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        notify: Notify = ignore,
        *,
        final_only: bool = False,
        request_id: str | None = None,
        priority: int = 0,
        add_special_tokens: bool = True,
        timeout: float | None = None,
        constraint: Callable[[], TokenConstraint] | None = None,
    ) -> RequestStream:
        """A request for a prompt, text or token ids, and `params.n` sequences: sequence i draws with seed + i.

        See `RequestStream` for `notify` and `final_only`; `timeout` is in seconds from now; `constraint` makes one for
        each sequence. Raises RequestError naming the limit, the value and the fix.
        """
        arrival = time.perf_counter()
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < math.inf):
            raise RequestError(f"timeout must be a number of seconds above 0, got {shown(timeout)}")
        token_ids = self._token_ids(prompt, params, add_special_tokens)
        max_output = self._max_output(len(token_ids), params)
        params.check_vocabulary(self._vocab_size)
        if params.stop_strings and isinstance(self._tokenizer, NoTokenizer):
            raise RequestError("stop: this engine has no tokenizer and so no text to match; use stop_token_ids")
        seed = int.from_bytes(os.urandom(8), "little") if params.seed is None else params.seed
        bad_words = self._bad_words(params.bad_words)
        if params.structured_outputs is not None:
            constraint = self.forms.compile(params.structured_outputs)
        retention = None if params.cache_priority is None else Retention(params.cache_priority, params.cache_ttl)
        number = next(self._numbers)
        name = str(number) if request_id is None else request_id

        def sequence(index: int) -> Request:
            own_seed, held = seed + index & _UINT64, constraint and constraint()
            sampling = SequenceSampling(params, own_seed, token_ids[:], len(token_ids), bad_words, held)
            return Request(
                next(self._sequence_numbers),
                sampling,
                self._kv.new_sequence(params.cache_salt, retention),
                self._output_text(sampling, max_output),
                self._tokenizer,
                Metrics(arrival),
                max_total_tokens=len(token_ids) + max_output,
                request_id=name,
                index=index,
                priority=priority,
                timeout=timeout,
            )

        requests = [sequence(index) for index in range(params.n)]
        return RequestStream(name, prompt if isinstance(prompt, str) else None, requests, notify, final_only=final_only)

    def _token_ids(self, prompt: str | Sequence[int], params: SamplingParams, add_special_tokens: bool) -> array:
        if isinstance(prompt, str):
            return self.checked_ids(self.encode(prompt, add_special_tokens=add_special_tokens))
        if isinstance(prompt, list | tuple) and len(prompt) >= self._max_seq_len:
            self._max_output(len(prompt), params)  # before each of them is looked at
        return self.checked_ids(prompt)

    def _output_text(self, sampling: SequenceSampling, max_output: int) -> OutputText:
        """The text of one sequence, whose stop tokens are banned as long as `min_tokens` says. A token must be left."""
        params = sampling.params
        detokenizer = Detokenizer(self._tokenizer, skip_special_tokens=params.skip_special_tokens)
        output_text = OutputText(params, detokenizer, self._eos_token_ids, max_output)
        if params.min_tokens:
            sampling.set_bias(ban=output_text.stop_tokens)
        self._check_choice(sampling)
        return output_text

    def _bad_words(self, words: Sequence[str]) -> list[Sequence[int]]:
        """Each word's tokens, in the midst of a text and after a space: vLLM's two, where they are as many.

        Tokens that the model lacks cannot come anyway.
        """
        if words and isinstance(self._tokenizer, NoTokenizer):
            raise RequestError("bad_words: this engine has no tokenizer; ban tokens by logit_bias")
        found: list[Sequence[int]] = []
        for word in words:
            plain, spaced = (
                self._tokenizer.encode(text, add_special_tokens=False) for text in (word.lstrip(), " " + word.lstrip())
            )
            found.append(plain)
            if spaced and len(spaced) == len(plain) and spaced[0] != plain[0]:
                found.append(spaced)
        return [ids for ids in found if ids and all(0 <= token < self._vocab_size for token in ids)]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a prompt. One that is too long whatever its tokens are is not looked at: it would take seconds.

        Raises RequestError for that, and for a text that cannot be encoded.
        """
        if len(text) > self._max_seq_len * _LONG_TOKEN:
            most = self._max_seq_len * self._tokenizer.longest_token
            if len(text) > most:
                raise RequestError(
                    f"prompt has {len(text)} characters, more than the {most} that {self._max_seq_len} tokens, this "
                    f"engine's max_seq_len, can stand for: shorten the prompt"
                )
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def checked_ids(self, token_ids: Sequence[int]) -> array:
        """Token ids, also of NumPy's integer types; a damaged tokenizer's are looked at too."""
        if isinstance(token_ids, bytes | bytearray | Mapping) or not isinstance(token_ids, Collection):
            raise RequestError(f"prompt must be text or a list of token ids, got {type(token_ids).__name__}")
        checked = array("i")
        for position, token in enumerate(token_ids):
            try:
                number = -1 if isinstance(token, bool) else index(token)
            except TypeError:
                number = -1
            if not 0 <= number < self._vocab_size:
                raise RequestError(
                    f"prompt: token ids must be integers in [0, {self._vocab_size}), got {shown(token)} "
                    f"at position {position}"
                )
            checked.append(number)
        return checked

    def _check_choice(self, sampling: SequenceSampling) -> None:
        """A token must be left to draw."""
        banned = sum(bias == -math.inf for bias in sampling.bias_values or ())
        if banned >= self._vocab_size:
            raise RequestError(
                f"logit_bias and min_tokens ban all {banned} tokens of the vocabulary: leave at least one to draw"
            )

    def _rebuilt(self, needed: int) -> str:
        """The advice to build a larger engine, where the model can go that far."""
        limit = self._max_positions
        if limit is None or needed <= limit:
            return f", or rebuild with --max-seq-len {shown(needed)}"
        if limit > self._max_seq_len:
            return f" (rebuilt with --max-seq-len {limit}, all that the model was made for, it could take more)"
        return f" (the model itself was made for {limit} tokens)"

    def _max_output(self, prompt_length: int, params: SamplingParams) -> int:
        """Most tokens the request may generate."""
        if prompt_length == 0:
            raise RequestError("prompt has no tokens: give at least one token or character")
        room = self._max_seq_len - prompt_length
        if room < 1:
            raise RequestError(
                f"prompt has {prompt_length} tokens, but this engine's max_seq_len is {self._max_seq_len}, prompt and "
                f"output together: shorten the prompt to at most {self._max_seq_len - 1} tokens"
                + self._rebuilt(prompt_length + (params.max_tokens or 1))
            )
        max_tokens = room if params.max_tokens is None else params.max_tokens
        if max_tokens == self._advised_max_tokens:  # advice of the checkpoint, made for sequences of any length
            max_tokens = min(max_tokens, room)
        if max_tokens > room:
            raise RequestError(
                f"prompt ({prompt_length} tokens) and max_tokens ({shown(max_tokens)}) together exceed this engine's "
                f"max_seq_len of {self._max_seq_len}: lower max_tokens to at most {room} or shorten the prompt"
                + self._rebuilt(prompt_length + max_tokens)
            )
        if params.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens must be at most {max_tokens}, all that is left, got {shown(params.min_tokens)}"
            )
        return max_tokens
