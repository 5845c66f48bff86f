"""Attention masks, described and never built.

Transformers builds a mask from a tree of functions `(batch, head, query, key) -> bool`. The tree is read through the
functions' closures; whatever the attention operation cannot express is refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedModelError


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


def _tightest(a: int, b: int) -> int:
    return min(a, b) if a and b else a or b


def describe_mask(function: Callable[..., Any]) -> MaskSpec:
    """Read a Transformers mask function. Raises UnsupportedModelError naming a part that is not understood."""
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
            spec = MaskSpec()
            for part in cells["mask_functions"]:
                spec &= describe_mask(part)
            return spec
        case "remap_positions_for_packed_sequence":
            return describe_mask(next(cell for cell in cells.values() if callable(cell)))
        case _:
            raise UnsupportedModelError(f"attention mask {function.__qualname__!r} is not supported")


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return dict(zip(names, (cell.cell_contents for cell in cells), strict=True))


class LazyMask:
    """Stands for a mask while a model runs; a model may pass it on and trim it, but not compute with it."""

    def __init__(self, spec: MaskSpec) -> None:
        self.spec = spec

    def __getitem__(self, index: Any) -> "LazyMask":
        whole = isinstance(index, tuple) and all(
            isinstance(part, slice) and part.start in (None, 0) and part.step is None for part in index
        )
        return self if whole else self._refuse("indexing")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mask = next(value for value in (*args, *(kwargs or {}).values()) if isinstance(value, cls))
        return mask._refuse(getattr(function, "__name__", str(function)))

    def _refuse(self, operation: str) -> Any:
        raise UnsupportedModelError(f"the model computes with its attention mask ({operation}), which is not supported")


def lazy_mask(*_: Any, mask_function: Callable[..., Any], **__: Any) -> LazyMask:
    """The mask interface registered with Transformers."""
    return LazyMask(describe_mask(mask_function))
