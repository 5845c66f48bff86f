"""Mixtures of experts, through Transformers' experts interface."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from transformers.integrations.moe import ExpertsInterface

from ...errors import UnsupportedModelError
from ...plugins.experts.gate import Gate
from ...plugins.linear.activation_function import ActivationFunction
from . import ops  # noqa: F401  (defines the operators)

NAME = "enginesmith"


def register_experts() -> None:
    """Make "enginesmith" an implementation of experts."""
    ExpertsInterface.register(NAME, _experts)


def own_experts(model: nn.Module) -> str | None:
    """What to say of a model whose experts are not called through the interface, so that they cannot be traced."""
    for module in model.modules():
        name = type(module).__name__
        if "expert" in name.lower() and not hasattr(module, "has_gate") and any(True for _ in module.parameters()):
            return f"a mixture of experts ({name}) that does not use Transformers' experts interface"
    return None


@dataclass(frozen=True)
class _Projections:
    """Of all experts: gate and up [E, I, H], down [E, H, I]; biases [E, I] and [E, H]; None for those it lacks."""

    gate: Tensor | None
    up: Tensor
    down: Tensor
    gate_bias: Tensor | None
    up_bias: Tensor | None
    down_bias: Tensor | None


def _experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    if module.has_post_expert_norm:
        raise UnsupportedModelError(
            f"{type(module).__name__}: a mixture of experts with a norm of each expert's output"
        )
    gate = recognise_gate(module)
    if gate is None:
        raise UnsupportedModelError(f"{type(module).__name__}: a mixture of experts with a gate function of its own")
    weights = _projections(module)
    return torch.ops.enginesmith.experts(
        hidden_states,
        top_k_index,
        top_k_weights,
        weights.gate,
        weights.up,
        weights.down,
        weights.gate_bias,
        weights.up_bias,
        weights.down_bias,
        str(gate.activation),
        gate.limit,
        gate.up_offset,
    )


def _projections(module: Any) -> _Projections:
    def stored(name: str) -> Tensor:
        weight = getattr(module, name)
        return weight.transpose(1, 2) if module.is_transposed else weight

    down_bias = module.down_proj_bias if module.has_bias else None
    if not module.has_gate:
        bias = module.up_proj_bias if module.has_bias else None
        return _Projections(None, stored("up_proj"), stored("down_proj"), None, bias, down_bias)
    gate, up = _halves(module, stored("gate_up_proj"))
    gate_bias, up_bias = _halves(module, module.gate_up_proj_bias) if module.has_bias else (None, None)
    return _Projections(gate, up, stored("down_proj"), gate_bias, up_bias, down_bias)


def _halves(module: Any, both: Tensor) -> tuple[Tensor, Tensor]:
    """Gate and up, which lie one after the other in dimension 1, or take turns there."""
    if not module.is_concatenated:
        return both[:, ::2], both[:, 1::2]
    size = both.shape[1] // 2
    return both[:, :size], both[:, size:]


def recognise_gate(module: Any) -> Gate | None:
    """What an experts module does with its gate and up projections, told from numbers that it is given; else None."""
    with torch.no_grad(), _disable_current_modes():
        try:
            gate = _measured(module)
        except Exception:  # it takes something else, or computes with parameters
            return None
        if gate is None:
            return None
        x = torch.linspace(-12.0, 12.0, 49)
        x = torch.cat([x, x * 1e3])
        g, u = (part.reshape(-1) for part in torch.meshgrid(x, x, indexing="ij"))
        off = np.abs(_gated(module, g, u).numpy() - gate(g.double().numpy(), u.double().numpy()))
        return gate if bool(np.all(off < 1e-5 * (1 + np.abs(g.numpy())) * (1 + np.abs(u.numpy())))) else None


def _gated(module: Any, gate: Tensor, up: Tensor) -> Tensor:
    """What the module makes of one token's gate [I] and up [I]."""
    if not module.has_gate:
        return module.act_fn(up[None])[0]
    both = torch.cat([gate, up]) if module.is_concatenated else torch.stack([gate, up], dim=1).reshape(-1)
    return module._apply_gate(both[None])[0]


def _measured(module: Any) -> Gate | None:
    """y = act(min(gate, limit)) (clamp(up, -limit, limit) + up_offset): each part of it from a few values of y."""
    few = torch.linspace(-4.0, 1.0, 31)
    if not module.has_gate:
        return next((Gate(a, gated=False) for a in ActivationFunction if _is(a, few, module.act_fn(few))), None)
    at_zero, at_one, far = (_gated(module, few, torch.full_like(few, up)) for up in (0.0, 1.0, 1e6))
    activated = at_one - at_zero
    largest = int(activated.abs().argmax())
    up_offset, top = float(at_zero[largest] / activated[largest]), float(far[largest] / activated[largest])
    limit = round(top - up_offset, 4) if top < 1e5 else 0.0
    return next((Gate(a, limit, round(up_offset, 4)) for a in ActivationFunction if _is(a, few, activated)), None)


def _is(function: ActivationFunction, x: Tensor, y: Tensor) -> bool:
    return bool(np.allclose(function(x.numpy()), y.numpy(), rtol=1e-4, atol=1e-5))
