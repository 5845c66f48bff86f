"""Sampling of rows that the device has not: those that are not greedy, or that want more than a token."""

import ctypes
from array import array
from typing import TYPE_CHECKING

from ....errors import EngineError
from ..executor import Draw, Sample

if TYPE_CHECKING:
    import numpy as np


def is_greedy(draw: Draw) -> bool:
    """Whether the likeliest token by the raw logits is all that is wanted."""
    sampling = draw.sampling
    is_plain = not sampling.looks_back and not sampling.mask and sampling.bias_tokens is None
    return is_plain and sampling.params.temperature == 0 and draw.num_logprobs < 0 and draw.token < 0


class HostSampler:
    """Draws tokens as the CPU's kernel does."""

    def sample(self, logits: "np.ndarray", draw: Draw) -> Sample:
        """The token drawn from logits [V]. Raises EngineError where they are no distribution."""
        import numpy as np

        from ....plugins.sampling.reference import Sampling, sample

        if np.isnan(logits).any() or np.isposinf(logits).any() or np.isneginf(logits).all():
            raise EngineError("the logits hold NaN or infinity, or no finite number at all")
        if draw.token >= 0:
            return _reported(logits, draw.token, draw.num_logprobs)
        sampling = draw.sampling
        params, tokens, prompt = sampling.params, sampling.token_ids[: draw.length], sampling.prompt_length
        settings = Sampling(
            temperature=_float32(params.temperature),
            top_k=max(params.top_k, 0),
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            prompt=tuple(tokens[:prompt]) if sampling.looks_back else (),
            output=tuple(tokens[prompt:]) if sampling.looks_back else (),
            bias=dict(zip(sampling.bias_tokens or (), sampling.bias_values or (), strict=True)),
            no_repeat_ngram_size=params.no_repeat_ngram_size,
            bad_words=_words(sampling.bad_words),
            allowed=_allowed(sampling.mask, len(logits)),
            seed=sampling.seed % 2**64,
            position=draw.length - prompt,
        )
        token = sample(logits, settings)
        return _reported(logits, token, draw.num_logprobs)


def _reported(logits: "np.ndarray", token: int, num_logprobs: int) -> Sample:
    """A token, with its log probability and those of the likeliest where asked for."""
    import numpy as np

    from ....plugins.sampling.reference import log_softmax, rank

    if num_logprobs < 0:
        return Sample(token)
    probabilities = log_softmax(logits)
    best = np.argsort(-logits, kind="stable")[:num_logprobs]
    top = tuple((int(index), float(probabilities[index])) for index in best)
    return Sample(token, float(probabilities[token]), rank(logits, token), top)


def _words(packed: array | None) -> tuple[tuple[int, ...], ...]:
    """Sequences of tokens, each after its length in `packed`."""
    words, numbers = [], iter(packed or ())
    for length in numbers:
        words.append(tuple(next(numbers) for _ in range(length)))
    return tuple(words)


def _allowed(mask: int, vocab_size: int) -> frozenset[int] | None:
    """The tokens whose bits are set in the mask at an address; None for address 0."""
    import numpy as np

    if not mask:
        return None
    words = np.ctypeslib.as_array((ctypes.c_uint8 * (-(-vocab_size // 32) * 4)).from_address(mask))
    return frozenset(np.flatnonzero(np.unpackbits(words, bitorder="little", count=vocab_size)).tolist())


def _float32(value: float) -> float:
    """A temperature as the kernel takes it: what is positive stays so and finite in float32."""
    return min(max(value, 2.0**-126), 2.0**100) if value > 0 else 0.0
