"""Draws tokens from rows of logits with the sampler's library, through buffers made once."""

import ctypes
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...errors import EngineError, ParameterError, RequestError
from ..sampling_params import MAX_LOGPROBS
from .executor import Draw, Sample
from .native_arrays import address, zeros
from .sampler_abi import EsParallel, EsSample, declare
from .shared_library import load_library

_SMALLEST, _LARGEST = 2.0**-126, 2.0**100  # normal in float32, and so are logits divided by the largest
_OPTIONS: Mapping[str, Callable[[Draw], bool]] = {
    "given_token": lambda draw: draw.token >= 0,
    "mask": lambda draw: bool(draw.sampling.mask),
    "no_repeat_ngram_size": lambda draw: draw.sampling.params.no_repeat_ngram_size > 0,
    "bad_words": lambda draw: draw.sampling.bad_words is not None,
}
"""Whether a draw uses a field: each that was added to EsSample needs a line."""
_NOTHING_LEFT = "every token is banned"  # the library's words
_BANS: Mapping[str, Callable[[Draw], bool]] = {
    "structured_outputs": _OPTIONS["mask"],
    "logit_bias": lambda draw: bool(draw.sampling.params.logit_bias),
    "bad_words": _OPTIONS["bad_words"],
    "no_repeat_ngram_size": _OPTIONS["no_repeat_ngram_size"],
}
"""What can ban a token, and whether a draw uses it."""


class Sampler:
    """The library at `path`, for logits [at most max_rows, vocab_size].

    `parallel`: an engine's threads, which must outlive it, or how many of its own.
    """

    def __init__(self, path: Path, parallel: EsParallel | int, max_rows: int, vocab_size: int) -> None:
        self._library = load_library(path, declare)
        self._known_size = self._library.es_sample_size()
        self._buffers = _Buffers(max_rows, vocab_size)
        handle = ctypes.c_void_p()
        is_alone = isinstance(parallel, int)
        open_sampler = self._library.es_sampler_open_alone if is_alone else self._library.es_sampler_open
        if open_sampler(parallel, vocab_size, handle):
            raise EngineError(f"{path} cannot be opened: {self._last_error()}")
        self._handle = handle
        self.close: Callable[[], object] = weakref.finalize(self, self._library.es_sampler_close, handle)

    @property
    def is_current(self) -> bool:
        """Whether the library knows every option that this enginesmith does."""
        return self._known_size >= ctypes.sizeof(EsSample)

    def sample(self, logits: int, num_rows: int, draws: Sequence[Draw]) -> list[Sample]:
        """A token for each draw, from the float32 logits at an address."""
        if not self.is_current:
            self._require_known(draws)
        if self._library.es_sample(self._handle, logits, num_rows, self._buffers.fill(draws)):
            error = self._last_error()
            if error.endswith(_NOTHING_LEFT):
                raise _banned(draws)
            raise EngineError(f"the engine failed to sample {len(draws)} tokens: {error}")
        return self._buffers.read(draws)

    def _require_known(self, draws: Sequence[Draw]) -> None:
        """A library older than an option would leave it out silently."""
        for name, is_used in _OPTIONS.items():
            if getattr(EsSample, name).offset >= self._known_size and any(is_used(draw) for draw in draws):
                raise RequestError(
                    f"{name}: the engine's sampler is older than this option: rebuild the engine, or leave it out"
                )

    def _last_error(self) -> str:
        return self._library.es_sampler_error().decode(errors="replace")


def _banned(draws: Sequence[Draw]) -> ParameterError:
    """What to say where nothing can be drawn: which of the request's options leave nothing, between them."""
    first, *others = [name for name, is_used in _BANS.items() if any(map(is_used, draws))] or ["logit_bias"]
    beside = f", together with {' and '.join(others)}" if others else ""
    return ParameterError(first, f"leaves no token to draw next{beside}: every one is banned")


class _Buffers:
    """An EsSample with room for `rows` draws."""

    def __init__(self, rows: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._columns = {
            name: zeros(typecode, rows)
            for typecode, names in (
                ("f", "temperature top_p min_p repetition_penalty presence_penalty frequency_penalty logprob"),
                ("i", "row top_k num_logprobs given_token no_repeat_ngram_size prompt_length history_length"),
                ("i", "bias_length bad_words_length token rank"),
                ("Q", "seed position history bias_tokens bias_values mask bad_words"),
            )
            for name in names.split()
        }
        self._top_tokens, self._top_logprobs = zeros("i", rows * MAX_LOGPROBS), zeros("f", rows * MAX_LOGPROBS)
        columns = self._columns | {"top_tokens": self._top_tokens, "top_logprobs": self._top_logprobs}
        addresses = {name: address(column) for name, column in columns.items()}
        self._args = EsSample(size=ctypes.sizeof(EsSample), **addresses)

    def fill(self, draws: Sequence[Draw]) -> EsSample:
        most = 0
        for index, draw in enumerate(draws):
            self._fill_one(index, draw)
            most = max(most, draw.num_logprobs)
        self._args.num_draws, self._args.max_logprobs = len(draws), most
        return self._args

    def _fill_one(self, index: int, draw: Draw) -> None:
        to, sampling, length = self._columns, draw.sampling, draw.length
        params = sampling.params
        to["row"][index] = draw.row
        to["temperature"][index] = _float32(params.temperature)
        to["top_p"][index] = _float32(params.top_p)
        to["min_p"][index] = _float32(params.min_p)
        to["top_k"][index] = min(max(params.top_k, 0), self._vocab_size)
        to["repetition_penalty"][index] = params.repetition_penalty
        to["presence_penalty"][index] = params.presence_penalty
        to["frequency_penalty"][index] = params.frequency_penalty
        to["seed"][index] = sampling.seed
        to["position"][index] = max(0, length - sampling.prompt_length)
        to["prompt_length"][index] = sampling.prompt_length
        to["history_length"][index] = length
        to["history"][index] = address(sampling.token_ids) if sampling.looks_back else 0
        to["num_logprobs"][index] = draw.num_logprobs
        to["given_token"][index] = draw.token
        to["mask"][index] = sampling.mask
        to["no_repeat_ngram_size"][index] = min(params.no_repeat_ngram_size, length + 2)  # none is longer
        self._point("bias_tokens", index, sampling.bias_tokens)
        self._point("bias_values", index, sampling.bias_values)
        self._point("bad_words", index, sampling.bad_words)
        to["bias_length"][index] = len(sampling.bias_tokens or ())
        to["bad_words_length"][index] = len(sampling.bad_words or ())

    def _point(self, name: str, index: int, values: array | None) -> None:
        self._columns[name][index] = 0 if values is None else address(values)

    def read(self, draws: Sequence[Draw]) -> list[Sample]:
        samples, columns = [], self._args.max_logprobs
        tokens, logprobs, ranks = self._columns["token"], self._columns["logprob"], self._columns["rank"]
        for index, draw in enumerate(draws):
            if draw.num_logprobs < 0:
                samples.append(Sample(tokens[index]))
                continue
            best = slice(index * columns, index * columns + draw.num_logprobs)
            top = tuple(zip(self._top_tokens[best], self._top_logprobs[best], strict=True))
            samples.append(Sample(tokens[index], logprobs[index], ranks[index], top))
        return samples


def _float32(value: float) -> float:
    """A setting that is not negative as the kernel takes it: what is positive stays so and finite in float32."""
    return min(max(value, _SMALLEST), _LARGEST) if value > 0 else 0.0
