"""What chats and completions have in common: sampling, streaming, and vLLM's extras.

Types are strict, as OpenAI's: "3" is no number. Ranges are those of `SamplingParams`, which checks them. A field that
is not given, or null, takes the engine's default. Unknown fields are ignored, as in vLLM; known ones that the server
lacks are refused, for they would change the answer.
"""

from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from ...errors import ParameterError, shown

T = TypeVar("T")


class _FirstError(FailFast):
    def __hash__(self) -> int:  # which unions ask for
        return id(self)


Items = Annotated[list[T], _FirstError()]
"""A list of which the first wrong item is told: an error for each of some millions takes minutes and gigabytes."""


class Body(BaseModel):
    """A request's JSON."""

    model_config = ConfigDict(strict=True, extra="ignore")

    refused: ClassVar[dict[str, tuple[tuple[Any, ...], str]]] = {}
    """Fields that the server lacks: the values that ask for nothing, and what to do instead."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, (harmless, instead) in cls.refused.items():
                value = data.get(name)
                if value is not None and value not in harmless:
                    raise ParameterError(name, f"is not supported, found {shown(value)}: {instead}")
        return data


class StreamOptions(Body):
    """`stream_options`."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationBody(Body):
    """Fields that chats and completions share."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    seed: int | None = None
    stop: str | Items[str] | None = None
    stop_token_ids: Items[int] | None = None
    bad_words: Items[str] | None = None
    no_repeat_ngram_size: int | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: int | None = None
    cache_salt: str | None = None
    cache_priority: int | None = None
    cache_ttl: float | None = None

    priority: int = Field(0, ge=-(2**31), lt=2**31)
    response_format: Any = None
    structured_outputs: Any = None
    return_token_ids: bool = False
