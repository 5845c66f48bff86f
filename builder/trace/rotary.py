"""Rotary embeddings: functions found by their `cos` and `sin` parameters, recognised by what they compute.

A function is run on random tensors and compared with each form of the operation. Some forms hold only if cos repeats
itself, as most models' does (its two halves are equal, or its pairs are); such a form is used on the promise, checked
after export by `verify`, that the model's cos does.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ...errors import UnsupportedModelError
from .modeling_modules import namespaces

_TOKENS, _HEADS = 3, 2
_POSITIONS = torch.tensor([0, 1, 2, 7, 19, 101])


@dataclass(frozen=True)
class RotaryForm:
    """The attributes of one RotaryEmbedding node, and what it assumes of cos: "free", "halves" or "pairs" (equal)."""

    style: str
    rotary_dim: int
    cos_stride: int
    heads_axis: int
    cos_layout: str

    def apply(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = self.rotary_dim // 2
        c, s = (t[..., : half * self.cos_stride : self.cos_stride].unsqueeze(self.heads_axis) for t in (cos, sin))
        turned, rest = x[..., : self.rotary_dim], x[..., self.rotary_dim :]
        a, b = (
            (turned[..., :half], turned[..., half:]) if self.style == "neox" else (turned[..., ::2], turned[..., 1::2])
        )
        a, b = a * c - b * s, b * c + a * s
        y = torch.stack((a, b), -1).flatten(-2) if self.style == "gptj" else torch.cat((a, b), -1)
        return torch.cat((y, rest), -1)

    def trace(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.ops.enginesmith.rotary_embedding(
            x, cos, sin, self.style, self.rotary_dim, self.cos_stride, self.heads_axis, self.cos_layout
        )


@contextmanager
def fused_rotary(model: nn.Module) -> Iterator[None]:
    """While this holds, the rotary functions of the model's own modules trace into RotaryEmbedding operations."""
    saved: list[tuple[dict[str, Any], str, Any]] = []
    recognise = _Recogniser()
    for namespace in namespaces(model):
        for key, value in list(namespace.items()):
            if inspect.isfunction(value) and {"cos", "sin"} <= set(inspect.signature(value).parameters):
                saved.append((namespace, key, value))
                namespace[key] = _wrap(value, recognise)
    try:
        yield
    finally:
        for namespace, key, value in saved:
            namespace[key] = value


def _wrap(function: Callable[..., Any], recognise: "_Recogniser") -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        forms = recognise(function, bound)
        if forms is None:
            return function(*args, **kwargs)
        cos, sin = bound.arguments["cos"], bound.arguments["sin"]
        first, *more = (form.trace(bound.arguments[name], cos, sin) for name, form in forms.items())
        return (first, *more) if more else first

    return wrapper


class _Recogniser:
    """Finds the form of a call, and remembers it for calls of the same function with the same shapes."""

    def __init__(self) -> None:
        self._known: dict[object, dict[str, RotaryForm] | None] = {}

    def __call__(self, function: Callable[..., Any], bound: inspect.BoundArguments) -> dict[str, RotaryForm] | None:
        tensors = {name: value for name, value in bound.arguments.items() if isinstance(value, Tensor)}
        rotated = [name for name in tensors if name not in ("cos", "sin")]
        if not _plain(tensors, rotated):
            return None
        sizes: Any = next(tensors[name] for name in rotated).shape
        heads_axis = 1 if isinstance(sizes[2], torch.SymInt) else 2
        scalars = tuple((k, v) for k, v in bound.arguments.items() if isinstance(v, (int, float, str)))
        shapes = tuple((name, int(tensors[name].shape[-1])) for name in tensors)
        key = (function, heads_axis, scalars, shapes)
        if key not in self._known:
            with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                self._known[key] = _recognise(function, bound, rotated, dict(shapes), heads_axis)
        return self._known[key]


def _plain(tensors: dict[str, Tensor], rotated: list[str]) -> bool:
    """Real 4-D tensors to rotate, and real cos and sin [1, T, C]."""
    if not rotated or "cos" not in tensors or "sin" not in tensors:
        return False
    real = all(tensor.is_floating_point() for tensor in tensors.values())
    return real and tensors["cos"].ndim == tensors["sin"].ndim == 3 and all(tensors[n].ndim == 4 for n in rotated)


def _recognise(
    function: Callable[..., Any],
    bound: inspect.BoundArguments,
    rotated: list[str],
    dims: dict[str, int],
    heads_axis: int,
) -> dict[str, RotaryForm] | None:
    width = dims["cos"]
    shape = (1, _HEADS, _TOKENS) if heads_axis == 1 else (1, _TOKENS, _HEADS)
    inputs = {name: torch.randn(*shape, dims[name]) for name in rotated}
    for layout in ("free", "halves", "pairs"):
        cos, sin = _random_angles(layout, width), _random_angles(layout, width)
        try:
            outputs = function(**{**bound.arguments, **inputs, "cos": cos, "sin": sin})
        except (RuntimeError, ValueError, TypeError):
            return None
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        if len(outputs) != len(rotated):
            return None
        forms = [
            next(
                (
                    f
                    for f in _candidates(layout, width, dims[name], heads_axis)
                    if _agrees(f, inputs[name], cos, sin, y)
                ),
                None,
            )
            for name, y in zip(rotated, outputs, strict=True)
        ]
        found = [form for form in forms if form is not None]
        if len(found) == len(rotated):
            return dict(zip(rotated, found, strict=True))
    return None


def _random_angles(layout: str, width: int) -> Tensor:
    if layout == "halves":
        return torch.randn(1, _TOKENS, width // 2).repeat(1, 1, 2)
    if layout == "pairs":
        return torch.randn(1, _TOKENS, width // 2).repeat_interleave(2, -1)
    return torch.randn(1, _TOKENS, width)


def _candidates(layout: str, width: int, head_dim: int, heads_axis: int) -> Iterator[RotaryForm]:
    full_width = [(width, 2 if layout == "pairs" else 1)]
    forms = [(2 * width, 1), *full_width] if layout == "free" else full_width
    for rotary_dim, stride in forms:
        if rotary_dim <= head_dim:
            for style in ("neox", "gptj", "gptj_to_neox"):
                yield RotaryForm(style, rotary_dim, stride, heads_axis, layout)


def _agrees(form: RotaryForm, x: Tensor, cos: Tensor, sin: Tensor, y: Any) -> bool:
    return isinstance(y, Tensor) and y.shape == x.shape and torch.allclose(form.apply(x, cos, sin), y, atol=1e-5)


def verify(program: torch.export.ExportedProgram) -> None:
    """Check, by computing it, that every cos and sin has the layout its RotaryEmbedding was recognised with."""
    from .position_values import PositionValues

    target = torch.ops.enginesmith.rotary_embedding.default
    promises = dict.fromkeys(
        (argument, node.args[7])
        for node in program.graph.nodes
        if node.op == "call_function" and node.target is target and node.args[7] != "free"
        for argument in node.args[1:3]
    )
    if not promises:
        return
    values = PositionValues(program, _POSITIONS).compute([argument for argument, _ in promises], {})
    for argument, layout in promises:
        value = values[argument]
        half = value.shape[-1] // 2
        a, b = (value[..., :half], value[..., half:]) if layout == "halves" else (value[..., ::2], value[..., 1::2])
        if not torch.equal(a, b):
            raise UnsupportedModelError(f"rotary embedding with angles that do not repeat in {layout} is not supported")
