"""The operations a model is traced into, as opaque torch operators: they have a shape, never an implementation."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from ...plugins.plugin import DOMAIN
from .masks import MaskSpec

_SCHEMAS = (
    "paged_attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, float[] slopes, float scale, int window, "
    "float softcap, int causal, int chunk) -> Tensor",
    "recurrence(str operation, Tensor?[] inputs, SymInt[] shape, str attributes) -> Tensor",
    "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    "experts(Tensor x, Tensor indices, Tensor weights, Tensor? gate, Tensor up, Tensor down, Tensor? gate_bias, "
    "Tensor? up_bias, Tensor? down_bias, str activation, float limit, float up_offset) -> Tensor",
    "grouped_experts(Tensor x, Tensor? gate, Tensor up, Tensor down, str activation) -> Tensor",
    "rms_norm(Tensor x, Tensor? weight, float epsilon, float offset) -> Tensor",
    "rotary_embedding(Tensor x, Tensor cos, Tensor sin, str style, int rotary_dim, int cos_stride, int heads_axis, "
    "str cos_layout) -> Tensor",
)

_library = torch.library.Library(DOMAIN, "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


@torch.library.register_fake(f"{DOMAIN}::paged_attention", lib=_library)
def _(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


@torch.library.register_fake(f"{DOMAIN}::recurrence", lib=_library)
def _(operation: str, inputs: Sequence[Tensor | None], shape: Sequence[int], attributes: str) -> Tensor:
    like = next(each for each in inputs if each is not None)
    return like.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake(f"{DOMAIN}::experts", lib=_library)
def _(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake(f"{DOMAIN}::grouped_experts", lib=_library)
def _(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake(f"{DOMAIN}::rms_norm", lib=_library)
def _(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake(f"{DOMAIN}::rotary_embedding", lib=_library)
def _(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake(f"{DOMAIN}::linear", lib=_library)
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    slopes: Sequence[float],
    scale: float,
    mask: MaskSpec,
    softcap: float,
) -> Tensor:
    """q [1, H, T, D], k [1, Hk, T, D], v [1, Hk, T, Dv] -> [1, T, H, Dv]. `slopes`: of ALiBi, [H] or none."""
    return torch.ops.enginesmith.paged_attention(
        q, k, v, sinks, list(slopes), scale, mask.window, softcap, int(mask.causal), mask.chunk
    )


def recurrence(
    operation: str, inputs: Sequence[Tensor | None], shape: Sequence[int], **attributes: float | str
) -> Tensor:
    """A plugin's operation with state, float32 of `shape`, its inputs and attributes as its schema has them."""
    return torch.ops.enginesmith.recurrence(operation, list(inputs), list(shape), json.dumps(attributes))


@contextmanager
def opaque_linear() -> Iterator[None]:
    """While this holds, PyTorch's linear is one operator, far quicker to trace than what it stands for."""
    original = functional.linear
    functional.linear = lambda input, weight, bias=None: torch.ops.enginesmith.linear(input, weight, bias)
    try:
        yield
    finally:
        functional.linear = original
