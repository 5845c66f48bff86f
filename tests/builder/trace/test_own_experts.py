"""Experts outside Transformers' interface are recognised by what they compute."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.models.dbrx.modeling_dbrx import DbrxExperts
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashExperts

from enginesmith.builder.trace.own_experts import OwnExperts, recognise_experts
from enginesmith.plugins.linear.activation_function import ActivationFunction

EXPERTS, WIDTH, INNER = 4, 24, 36


class Interleaved(nn.Module):
    """Gate and up take turns, and outputs lie first in both weights; `power` is what no gate of engines does."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.experts, self.width, self.inner, self.power = EXPERTS, WIDTH, INNER, power
        self.both = nn.Parameter(torch.empty(EXPERTS, WIDTH, 2 * INNER))
        self.out = nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH))

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        rows = []
        for x, chosen, weights in zip(hidden_states, top_k_index, top_k_weights, strict=True):
            both = [x @ self.both[e] for e in chosen]
            inner = [torch.relu(each[1::2]) * each[::2].sign() * each[::2].abs() ** self.power for each in both]
            rows.append(sum(w * (each @ self.out[e]) for w, each, e in zip(weights, inner, chosen, strict=True)))
        return torch.stack(rows)


def made(kind: Any, *args: Any) -> nn.Module:
    with torch.device("meta"):
        return kind(*args)


def dbrx() -> Any:
    kind: Any = CONFIG_MAPPING["dbrx"]
    config = kind(d_model=WIDTH, ffn_config={"ffn_hidden_size": INNER, "hidden_size": WIDTH, "moe_num_experts": 4})
    return config.ffn_config


def longcat() -> Any:
    kind: Any = CONFIG_MAPPING["longcat_flash"]
    return kind(hidden_size=WIDTH, expert_ffn_hidden_size=INNER, n_routed_experts=EXPERTS, zero_expert_num=3)


@pytest.mark.parametrize(
    ("module", "activation", "identity"),
    [
        (made(DbrxExperts, dbrx()), ActivationFunction.SILU, False),
        (made(LongcatFlashExperts, longcat()), ActivationFunction.SILU, True),
        (made(Interleaved), ActivationFunction.RELU, False),
    ],
    ids=["flat weights", "experts that return their input", "by turns, transposed"],
)
def test_what_is_recognised(module: nn.Module, activation: ActivationFunction, identity: bool):
    found = recognise_experts(module)
    assert isinstance(found, OwnExperts)
    assert (found.activation, found.identity) == (activation, identity)
    assert found.gate is not None
    assert found.down(module).shape == (EXPERTS, WIDTH, INNER)
    assert {tuple(found.gate(module).shape[1:]), tuple(found.up(module).shape[1:])} == {(INNER, WIDTH)}


def test_another_function_is_not():
    assert recognise_experts(made(Interleaved, 2.0)) is None
