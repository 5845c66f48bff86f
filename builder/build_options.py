"""The options of a build: the one definition that the CLI, recipes and the Python API share."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import BeforeValidator, Field

from ..checked_options import Options
from .targets.options import DEFAULT, TARGETS, TargetOptions, options_of


def _named(value: Any) -> Any:
    """A target's bare name, and options without one, in full."""
    value = {"name": value} if isinstance(value, str) else value
    if not isinstance(value, dict):
        return value
    value = {"name": DEFAULT, **value}
    if value["name"] not in TARGETS:
        raise ValueError(f"there is no target {value['name']!r}, only {', '.join(TARGETS)}")
    return value


if TYPE_CHECKING:
    Target = TargetOptions
else:
    _variants = tuple(options_of(name) for name in TARGETS)
    _union = Annotated[Union[_variants], Field(discriminator="name")] if len(_variants) > 1 else _variants[0]  # noqa: UP007
    Target = Annotated[_union, BeforeValidator(_named)]


class BuildConfig(Options):
    """How to build an engine. Token limits are counts of tokens; sizes are powers of no particular base."""

    dtype: Literal["bf16", "fp32"] = Field(
        default="bf16",
        description="Element type of weights that are not quantized, and of the KV cache if that is not.",
    )
    weights: Literal["fp8", "int8", "int4"] | None = Field(
        default=None, description="Quantize linear layers, round to nearest; fp8 is E4M3; int4 has zero points."
    )
    group_size: int | None = Field(
        default=None,
        ge=8,
        description="Weights along K that share a scale (int4 default 64; int8 and fp8 default: the whole of K); "
        "of fp8 a multiple of 32.",
    )
    head: Literal["auto", "int8", "int4", "plain"] = Field(
        default="auto",
        description="The matrix that makes the logits, unless the checkpoint holds it quantized: plain is of --dtype, "
        "int8 has a scale for every 64 weights, int4 a scale and a zero for every 32, auto is int8 where other linear "
        "layers are quantized.",
    )
    embedding: Literal["plain", "int8"] = Field(
        default="plain",
        description="Rows of tokens: plain has a table of --dtype, int8 reads them out of an int8 head that the "
        "embedding is tied to, so that there is no table.",
    )
    kv_cache: Literal["int8", "fp8"] | None = Field(
        default=None, description="Quantize the KV cache (default: if the checkpoint says so)."
    )
    max_batch_size: int = Field(default=16, ge=1, le=4096, description="Requests that may run at once.")
    max_seq_len: int | None = Field(
        default=None,
        ge=2,
        description="Longest prompt plus output, in tokens; default: the model's own limit, at most 8192.",
    )
    max_num_tokens: int = Field(default=512, ge=1, le=65536, description="Tokens that one step may process.")
    kv_block_size: int = Field(
        default=32, ge=16, le=256, multiple_of=16, description="Tokens in one block of the KV cache."
    )
    target: Target = Field(
        default_factory=options_of(DEFAULT), description="What the engine runs on: a target's name, or its options."
    )
    check: bool = Field(default=True, description="Compare the engine with Transformers at the end.")
    check_distance: float | None = Field(
        default=None,
        gt=0,
        description="Largest distance of a logit that the check allows, of its row's spread; default: the scheme's.",
    )
    check_kl: float | None = Field(
        default=None, gt=0, description="Mean KL divergence that the check allows, in nats; default: the scheme's."
    )
