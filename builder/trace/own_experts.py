"""Mixtures of experts that a model computes outside Transformers' experts interface, recognised by what they compute.

A module is copied with small sizes and random parameters, and run on a few rows. Every way to read gate, up and down
projections out of its parameters is tried, until one gives the same numbers.
"""

import copy
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...plugins.linear.activation_function import ActivationFunction
from . import ops  # noqa: F401  (defines the operators)

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
_Reading = Callable[[nn.Module], Tensor]
_Run = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class OwnExperts:
    """Of the real module: how its projections are read; `identity`: experts past the last return their input."""

    gate: _Reading | None
    up: _Reading
    down: _Reading
    activation: ActivationFunction
    identity: bool


def replace_own_experts(model: nn.Module) -> None:
    """Let experts that are understood compute by the Experts operation. Parameters must be on "meta"."""
    known: dict[object, OwnExperts | None] = {}
    for module in model.modules():
        run = _KINDS.get(tuple(inspect.signature(module.forward).parameters))
        if run is None or hasattr(module, "has_gate"):
            continue
        if run is _run_grouped and not any(each.ndim == 3 for each in module.parameters()):
            continue
        key = type(module), tuple((name, tuple(each.shape)) for name, each in module.named_parameters())
        if key not in known:
            known[key] = recognise_experts(module)
        found = known[key]
        if found is not None:
            forward = _grouped_forward if run is _run_grouped else _routed_forward
            module.forward = types.MethodType(forward(found), module)


def _grouped_forward(found: OwnExperts) -> Callable[..., Tensor]:
    def forward(self: nn.Module, hidden_states: Tensor) -> Tensor:
        gate = None if found.gate is None else found.gate(self)
        weights = gate, found.up(self), found.down(self)
        return torch.ops.enginesmith.grouped_experts(hidden_states, *weights, str(found.activation))

    return forward


def _routed_forward(found: OwnExperts) -> Callable[..., Tensor]:
    def forward(self: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        x, down = hidden_states.reshape(-1, hidden_states.shape[-1]), found.down(self)
        count = down.shape[0]
        gate = None if found.gate is None else found.gate(self)[:count]
        up = found.up(self)[:count]
        options = (None, None, None, str(found.activation), 0.0, 0.0)
        y = torch.ops.enginesmith.experts(x, top_k_index, top_k_weights, gate, up, down, *options)
        if found.identity:
            y = y + (top_k_weights * (top_k_index >= count)).sum(-1, keepdim=True) * x
        return y.reshape(hidden_states.shape)

    return forward


def recognise_experts(module: nn.Module) -> OwnExperts | None:
    """What a module of (x [1, T, H] or [T, H], indices [T, k], weights [T, k]), or of x [E T, H] expert by expert,
    computes; None if not understood."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        small, run = _Small.of(module), _KINDS[tuple(inspect.signature(module.forward).parameters)]
        width = small.width(run) if small is not None else None
        if small is None or width is None:
            return None
        x = torch.randn(3, width)
        return next((found for found in _readings(small) if _agrees(found, small.module, run, x)), None)


@dataclass(frozen=True)
class _Small:
    """A copy with small sizes; `sizes`: those of the real module by small ones."""

    module: nn.Module
    sizes: dict[int, int]

    @classmethod
    def of(cls, module: nn.Module) -> "_Small | None":
        stated = {value for each in module.modules() for value in vars(each).values() if type(value) is int}
        real = sorted(value for value in stated if value > 1)
        if len(real) > len(_PRIMES):
            return None
        smaller: dict[int, int] = dict(zip(real, _PRIMES, strict=False))
        copied = copy.deepcopy(module)
        for each in copied.modules():
            vars(each).update({name: smaller[v] for name, v in vars(each).items() if type(v) is int and v > 1})
            for name, parameter in each._parameters.items():
                sizes = [] if parameter is None else [_smaller(size, smaller) for size in parameter.shape]
                shape = [size for size in sizes if size is not None]
                if parameter is None or len(shape) < parameter.ndim:
                    return None
                each._parameters[name] = nn.Parameter(torch.randn(shape) * 0.5, requires_grad=False)
        return cls(copied, {small: size for size, small in smaller.items()})

    def width(self, run: _Run) -> int | None:
        """The width of rows that the module takes."""
        for width in self.sizes:
            try:
                y = run(self.module, torch.zeros(2, width), torch.tensor([[0, 1], [1, 0]]), torch.ones(2, 2))
            except Exception:  # of other sizes
                continue
            if y.shape == (2, width):
                return width
        return None


def _smaller(size: int, smaller: dict[int, int]) -> int | None:
    """A size of a parameter in the small copy: one that the module states, twice it, or a product of two."""
    if size in smaller:
        return smaller[size]
    if size % 2 == 0 and size // 2 in smaller:
        return 2 * smaller[size // 2]
    return next((smaller[a] * smaller[size // a] for a in smaller if size % a == 0 and size // a in smaller), None)


def _run_routed(module: nn.Module, x: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """The module's output for rows [T, H], which it takes as they are or in a batch of one."""
    y = module(x, indices, weights)
    return y if y.shape == x.shape else module(x[None], indices, weights)[0]


def _run_grouped(module: nn.Module, x: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """The same of a module that takes rows of all experts, one expert after the other."""
    experts = next(each.shape[0] for each in module.parameters() if each.ndim == 3)
    y = module(x.repeat(experts, 1)).unflatten(0, (experts, len(x)))
    chosen = y[indices, torch.arange(len(x))[:, None]]
    return (chosen * weights[..., None]).sum(1)


_KINDS: dict[tuple[str, ...], _Run] = {
    ("hidden_states", "top_k_index", "top_k_weights"): _run_routed,
    ("hidden_states",): _run_grouped,
}


def _readings(small: _Small) -> Iterator[OwnExperts]:
    """Every way to take projections [E, rows, columns] out of the parameters, each used once."""
    names = [name for name, _ in small.module.named_parameters()]
    for order in itertools.permutations(names):
        for views in itertools.product(*(list(_views(small, name)) for name in order)):
            for gate, up, down in _roles(views):
                for activation in ActivationFunction:
                    yield OwnExperts(gate, up, down, activation, True)
                    yield OwnExperts(gate, up, down, activation, False)  # where there is no expert past the last


def _views(small: _Small, name: str) -> Iterator[_Reading]:
    parameter = small.module.get_parameter(name)
    if parameter.ndim == 3:
        yield lambda m: m.get_parameter(name)
        yield lambda m: m.get_parameter(name).transpose(1, 2)
    for count in small.sizes if parameter.ndim == 2 else ():
        if parameter.shape[0] % count == 0:

            def apart(m: nn.Module, count: int = count) -> Tensor:
                stored = m.get_parameter(name)
                return stored.reshape(count if m is small.module else small.sizes[count], -1, stored.shape[1])

            yield apart
            yield lambda m, apart=apart: apart(m).transpose(1, 2)


def _roles(views: tuple[_Reading, ...]) -> Iterator[tuple[_Reading | None, _Reading, _Reading]]:
    """Gate, up and down: each of its own, gate and up in one, one after the other or by turns; or no gate."""
    if len(views) == 3:
        yield views
    if len(views) != 2:
        return
    both, down = views

    def half(which: int, turns: bool) -> _Reading:
        def read(m: nn.Module) -> Tensor:
            whole = both(m)
            size = whole.shape[1] // 2
            return whole[:, which::2] if turns else whole[:, which * size : which * size + size]

        return read

    for turns, first in itertools.product((False, True), (0, 1)):
        yield half(first, turns), half(1 - first, turns), down
    yield None, both, down


def _agrees(found: OwnExperts, module: nn.Module, run: _Run, x: Tensor) -> bool:
    up, down = found.up(module), found.down(module)
    gate = None if found.gate is None else found.gate(module)
    count, inner, width = len(down), down.shape[2], x.shape[1]
    shapes = [(len(each), *each.shape[1:]) for each in (up, *([] if gate is None else [gate]))]
    if down.shape[1] != width or any(shape[0] < count or shape[1:] != (inner, width) for shape in shapes):
        return False
    last = count + 1 if found.identity else count
    indices = torch.tensor([[e, (e + 1) % last] for e in range(last)])
    weights, rows = torch.rand(len(indices), 2) + 0.5, x[torch.arange(len(indices)) % len(x)]
    try:
        y = run(module, rows, indices, weights)
    except Exception:  # it has fewer experts
        return False
    expected = torch.zeros_like(rows)
    for t, (row, chosen, factors) in enumerate(zip(rows, indices.tolist(), weights, strict=True)):
        for e, factor in zip(chosen, factors, strict=True):
            expected[t] += factor * (row if e == count else _expert(found.activation, gate, up, down, e, row))
    return torch.allclose(y, expected, rtol=1e-3, atol=1e-4)


def _expert(
    activation: ActivationFunction, gate: Tensor | None, up: Tensor, down: Tensor, e: int, row: Tensor
) -> Tensor:
    u = up[e] @ row
    g = u if gate is None else gate[e] @ row
    activated = torch.from_numpy(activation(g.numpy()))
    return down[e] @ (activated if gate is None else activated * u)
