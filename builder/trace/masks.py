"""Attention masks, described and not built unless a model computes with them.

Transformers builds a mask from a tree of functions `(batch, head, query, key) -> bool`. The tree is read through the
functions' closures. Where one is not understood, or where a model computes with its mask, the mask is built as for
Transformers' eager attention; own_attention.py then reads what became of it.
"""

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import eager_mask


@dataclass(frozen=True)
class MaskSpec:
    """Which keys a query sees: `j <= i` if causal; `i - window < j` if window; same chunk if chunk (0 means none)."""

    causal: bool = False
    window: int = 0
    chunk: int = 0

    def __and__(self, other: "MaskSpec") -> "MaskSpec":
        return MaskSpec(
            self.causal or other.causal, _tightest(self.window, other.window), _tightest(self.chunk, other.chunk)
        )

    def visible(self, queries: int, keys: int) -> Tensor:
        """bool [queries, keys]: which keys each query sees, both counted from 0."""
        i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
        seen = j <= i if self.causal else (i >= 0) & (j >= 0)
        if self.window:
            seen = seen & (j > i - self.window)
        return seen & (i // self.chunk == j // self.chunk) if self.chunk else seen


def _tightest(a: int, b: int) -> int:
    return min(a, b) if a and b else a or b


def describe_mask(function: Callable[..., Any]) -> MaskSpec | None:
    """Read a Transformers mask function; None where a part is not understood."""
    name = function.__qualname__.split(".")[0]
    cells = _closure(function)
    match name:
        case "causal_mask_function":
            return MaskSpec(causal=True)
        case "bidirectional_mask_function" | "packed_sequence_mask_function":
            return MaskSpec()  # the attention operation keeps sequences apart itself
        case "sliding_window_overlay":
            return MaskSpec(window=int(cells["sliding_window"]))
        case "chunked_overlay":
            return MaskSpec(chunk=int(cells["chunk_size"]))
        case "and_masks":
            specs = [describe_mask(part) for part in cells["mask_functions"]]
            return None if None in specs else functools.reduce(operator.and_, specs, MaskSpec())
        case "remap_positions_for_packed_sequence":
            return describe_mask(next(cell for cell in cells.values() if callable(cell)))
        case _:
            return None


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return dict(zip(names, (cell.cell_contents for cell in cells), strict=True))


class LazyMask:
    """Stands for a mask [1, 1, queries, keys] while a model runs. A model may pass it on and trim it; where it computes
    with it, it becomes the tensor that eager attention adds to scores: 0, and the lowest number where keys are hidden.
    """

    def __init__(self, spec: MaskSpec, queries: int, keys: int) -> None:
        self.spec = spec
        self._sizes = queries, keys

    @cached_property
    def tensor(self) -> Tensor:
        hidden = ~self.spec.visible(*self._sizes)[None, None]
        return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)

    def __getitem__(self, index: Any) -> "LazyMask | Tensor":
        whole = isinstance(index, tuple) and all(
            isinstance(part, slice) and part.start in (None, 0) and part.step is None for part in index
        )
        return self if whole else self.tensor[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(value: Any) -> Any:
            return value.tensor if isinstance(value, cls) else value

        return function(*map(plain, args), **{name: plain(value) for name, value in (kwargs or {}).items()})


def _forward_operator(name: str) -> None:
    setattr(LazyMask, name, lambda self, *others: getattr(self.tensor, name)(*others))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "lt", "le", "gt", "ge", "eq", "ne", "neg", "invert"):
    _forward_operator(f"__{_name}__")


def lazy_mask(
    *_: Any, mask_function: Callable[..., Any], q_length: int, kv_length: int, **options: Any
) -> LazyMask | Tensor:
    """The mask interface registered with Transformers. A mask that is not understood is built."""
    spec = describe_mask(mask_function)
    if spec is not None:
        return LazyMask(spec, q_length, kv_length)
    options["use_vmap"] = False  # functions of indices work on whole tensors of them
    return eager_mask(mask_function=mask_function, q_length=q_length, kv_length=kv_length, **options)
