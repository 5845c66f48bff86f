"""Sampling of rows that the device has not: those that are not greedy, or that want more than a token."""

from typing import TYPE_CHECKING

from ....errors import EngineError
from ..executor import Sample, SampleRow

if TYPE_CHECKING:
    import numpy as np


def is_greedy(row: SampleRow) -> bool:
    """Whether the likeliest token by the raw logits is all that the row wants."""
    params = row.params
    return params.temperature == 0 and params.logprobs is None and not params.has_penalties and row.bias_tokens is None


class HostSampler:
    """Draws tokens as the CPU's kernel does."""

    def sample(self, logits: "np.ndarray", row: SampleRow) -> Sample:
        """The token drawn from logits [V]. Raises EngineError where they are no distribution."""
        import numpy as np

        from ....plugins.sampling.reference import Sampling, log_softmax, rank, sample

        if np.isnan(logits).any() or np.isposinf(logits).any() or np.isneginf(logits).all():
            raise EngineError("the logits hold NaN or infinity, or no finite number at all")
        params, tokens = row.params, row.token_ids
        settings = Sampling(
            temperature=_float32(params.temperature),
            top_k=max(params.top_k, 0),
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            prompt=tuple(tokens[: row.prompt_length]) if params.has_penalties else (),
            output=tuple(tokens[row.prompt_length :]) if params.has_penalties else (),
            bias=dict(zip(row.bias_tokens or (), row.bias_values or (), strict=True)),
            seed=row.seed % 2**64,
            position=len(tokens) - row.prompt_length,
        )
        token = sample(logits, settings)
        if params.logprobs is None:
            return Sample(token)
        probabilities = log_softmax(logits)
        best = np.argsort(-logits, kind="stable")[: params.logprobs]
        top = tuple((int(index), float(probabilities[index])) for index in best)
        return Sample(token, float(probabilities[token]), rank(logits, token), top)


def _float32(value: float) -> float:
    """A temperature as the kernel takes it: what is positive stays so and finite in float32."""
    return min(max(value, 2.0**-126), 2.0**100) if value > 0 else 0.0
