"""How a request samples, when it ends, and who may reuse its KV cache: vLLM's names, checked where they are made."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import RequestError, shown
from .structured_output.params import StructuredOutputsParams

_MAX_FLOAT = sys.float_info.max

MAX_LOGPROBS = 20
"""Most `logprobs` and `prompt_logprobs` a request may ask for."""

MAX_N = 128
"""Most outputs of a prompt."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request. Raises RequestError naming the field, its limits and the value found."""

    n: int = 1
    """Outputs of the prompt, which share its blocks of the KV cache; output i draws with seed + i."""
    max_tokens: int | None = 16
    """Most output tokens; None means as many as `max_seq_len` leaves."""
    min_tokens: int = 0
    """Output tokens before an end-of-sequence or stop token can be drawn, or a stop string matched."""
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """Draw among the k likeliest tokens; 0 or -1 means all."""
    top_p: float = 1.0
    """Draw among the likeliest tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Draw among tokens at least this likely, relative to the likeliest."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output; within [0.001, 1000]."""
    presence_penalty: float = 0.0
    """Subtracted from logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted from logits of tokens in the output, times how often they are there."""
    logit_bias: Mapping[int, float] | None = None
    """Added to logits by token id; within [-100, 100], or -inf to ban a token."""
    bad_words: Sequence[str] = ()
    """Words that the output may not hold; of one of several tokens, the last is not drawn after the others."""
    no_repeat_ngram_size: int = 0
    """No sequence of so many tokens comes twice in prompt and output together; 0: any may."""
    seed: int | None = None
    """Key of the request's generator; None draws a fresh one."""
    stop: str | Sequence[str] = ()
    """Strings that end the output, matched on its text."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the output."""
    ignore_eos: bool = False
    """Go on past the end-of-sequence token."""
    logprobs: int | None = None
    """Report log probabilities of each sampled token and of this many of the likeliest."""
    prompt_logprobs: int | None = None
    """Report log probabilities of each token of the prompt, and of this many of the likeliest."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    include_stop_str_in_output: bool = False
    """Keep the stop string, or the text of the stop token, in the text."""
    structured_outputs: StructuredOutputsParams | None = None
    """A form that the output is held to."""
    cache_salt: str | None = None
    """Share blocks of the KV cache with requests of the same salt only."""
    cache_priority: int | None = None
    """How dear the request's blocks are once it has ended: of 0 to 100 the lowest go first. None: as they were before,
    35 for new ones."""
    cache_ttl: float | None = None
    """Seconds after the blocks' last use for which `cache_priority` holds; then it is 35. None: for good."""

    def __post_init__(self) -> None:
        _integer("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1)
        _integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens must be at most max_tokens ({shown(self.max_tokens)}), got {shown(self.min_tokens)}"
            )
        _number("temperature", self.temperature, 0)
        _integer("top_k", self.top_k, -1)
        _number("top_p", self.top_p, 0, 1, open_low=True)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, 0.001, 1000)  # beyond, logits overflow
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**64 - 1)
        _integer("no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), 0, MAX_LOGPROBS)
        self._check_form()
        self._check_cache()
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            if type(getattr(self, name)) is not bool:
                raise RequestError(f"{name} must be True or False, got {shown(getattr(self, name))}")
        self._check_collections()

    def _check_form(self) -> None:
        if self.structured_outputs is None:
            return
        if not isinstance(self.structured_outputs, StructuredOutputsParams):
            raise RequestError(
                f"structured_outputs must be StructuredOutputsParams or None, got {shown(self.structured_outputs)}"
            )
        for name in ("ignore_eos", "min_tokens", "bad_words", "no_repeat_ngram_size"):
            if getattr(self, name):
                raise RequestError(
                    f"{name} contradicts structured_outputs, which alone tell what comes and where it ends: omit it"
                )

    def _check_cache(self) -> None:
        if self.cache_salt is not None and (type(self.cache_salt) is not str or not self.cache_salt):
            raise RequestError(f"cache_salt must be a non-empty string, got {shown(self.cache_salt)}")
        if self.cache_priority is not None:
            _integer("cache_priority", self.cache_priority, 0, 100)
        if self.cache_ttl is not None:
            _number("cache_ttl", self.cache_ttl, 0, open_low=True)
            if self.cache_priority is None:
                raise RequestError("cache_ttl says how long a cache_priority holds: give that, too")

    def _check_collections(self) -> None:
        for name, value in (("stop", self.stop), ("bad_words", self.bad_words)):
            texts = (value,) if name == "stop" and isinstance(value, str) else _tuple(name, value)
            for text in texts:
                if not isinstance(text, str) or not text:
                    raise RequestError(f"{name} must hold non-empty strings, got {shown(text)}")
            object.__setattr__(self, name, texts)
        object.__setattr__(self, "stop_token_ids", _tuple("stop_token_ids", self.stop_token_ids))
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0)
        if not isinstance(self.logit_bias, Mapping | None):
            raise RequestError(f"logit_bias must map token ids to numbers, got {shown(self.logit_bias)}")
        for token, bias in (self.logit_bias or {}).items():
            _integer("logit_bias's token", token, 0)
            if bias != -math.inf:
                _number(f"logit_bias[{shown(token)}]", bias, -100, 100)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return tuple(self.stop)

    @property
    def has_penalties(self) -> bool:
        """Whether sampling looks at the tokens so far."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def replace(self, **changes: Any) -> "SamplingParams":
        """A copy with some fields changed, checked again."""
        known = {field.name for field in fields(self)}
        for name in sorted(changes.keys() - known):
            raise RequestError(f"unknown sampling parameter {name!r}; known are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise RequestError when a token id named here is outside the engine's vocabulary."""
        for name, tokens in (("stop_token_ids", self.stop_token_ids), ("logit_bias", self.logit_bias or ())):
            for token in tokens:
                if token >= vocab_size:
                    raise RequestError(f"{name}: token ids must be in [0, {vocab_size}), got {shown(token)}")


def _integer(name: str, value: object, low: int, high: int | None = None) -> None:
    if type(value) is int and value >= low and (high is None or value <= high):
        return
    limits = f"at least {low}" if high is None else f"in [{low}, {high}]"
    raise RequestError(f"{name} must be an integer {limits}, got {shown(value)}")


def _number(name: str, value: object, low: float, high: float | None = None, *, open_low: bool = False) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT:  # no NaN either
        above = value > low if open_low else value >= low
        if above and (high is None or value <= high):
            return
    if high is None:
        limits = f"greater than {low}" if open_low else f"at least {low}"
    else:
        limits = f"in {'(' if open_low else '['}{low}, {high}]"
    raise RequestError(f"{name} must be a number {limits}, got {shown(value)}")


def _tuple(name: str, value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(value)
    raise RequestError(f"{name} must be a list, got {shown(value)}")
