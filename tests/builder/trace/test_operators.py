"""Single operators of PyTorch: the network that they become computes what they do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from evaluate_network import run
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from enginesmith.builder.trace.export import export
from enginesmith.builder.trace.trace_model import convert

Operation = Callable[[Tensor, Tensor], Tensor]


class Toy(nn.Module):
    """A "language model" of one operation: embeddings [1, T, 8] and positions [1, T] to logits [1, T, ...]."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.operation = operation

    def forward(self, input_ids: Tensor, position_ids: Tensor, use_cache: bool, logits_to_keep: Tensor) -> object:
        x = self.operation(self.embed(input_ids), position_ids)
        return type("Output", (), {"logits": x[:, logits_to_keep]})()


def slices_written(x: Tensor, _: Tensor) -> Tensor:
    y = x.new_empty(*x.shape[:-1], 10)
    y[..., :8].copy_(x)
    y[..., 8:].copy_(x[..., :1])
    return y


def inner_slice_written(x: Tensor, _: Tensor) -> Tensor:
    y = x * 2
    y[..., 2:5] = x[..., :3]
    y[..., 4:] = 1.0
    return y


def complex_rotary(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions[..., None].float() * torch.tensor([1.0, 0.5, 0.25, 0.125])
    turns = torch.polar(torch.ones_like(angles), angles) * 1.5
    numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))[:, :, None, :]
    return torch.view_as_real(numbers * turns[:, :, None, :]).flatten(2)


def largest(x: Tensor, _: Tensor) -> Tensor:
    values, indices = x.max(-1, keepdim=True)
    return torch.cat([values, indices.to(x.dtype), x.max(dim=-1).values[..., None]], -1)


def token_shift(x: Tensor, _: Tensor) -> Tensor:
    return x + functional.pad(x, (0, 0, 1, -1)) * 0.5


def depthwise_convolution(x: Tensor, _: Tensor) -> Tensor:
    weight = torch.linspace(-1, 1, 24).reshape(8, 1, 3)
    return functional.conv1d(x.mT, weight, torch.arange(8.0), padding=2, groups=8)[..., : x.shape[1]].mT


def all_tokens_from_the_end(x: Tensor, _: Tensor) -> Tensor:
    return torch.concatenate([functional.logsigmoid(x[:, -x.shape[1] :]), x], -1)


def weights_of_heads(x: Tensor, _: Tensor) -> Tensor:
    weight = torch.linspace(-1, 1, 24).reshape(2, 1, 3, 4)
    return (weight @ x.mT.reshape(1, 2, 4, x.shape[1]).transpose(0, 1)).transpose(0, 1).flatten(1, 2).mT


@pytest.mark.parametrize(
    "operation",
    [
        slices_written, inner_slice_written, complex_rotary, largest, token_shift, depthwise_convolution,
        all_tokens_from_the_end, weights_of_heads,
    ],
)  # fmt: skip
def test_an_operator(operation: Operation) -> None:
    model = Toy(operation).eval().requires_grad_(False)
    weights = {"embed.weight": model.embed.weight.numpy().copy()}
    inputs = {"input_ids": np.arange(3, 9), "position_ids": np.arange(6), "logits_rows": np.array([0, 4, 5])}
    with torch.no_grad():
        ids, positions, rows = (torch.from_numpy(each) for each in inputs.values())
        expected = operation(model.embed(ids[None]), positions[None])[0, rows].numpy()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model.embed.weight = nn.Parameter(torch.empty(16, 8), requires_grad=False)
    network = type("Network", (), {"graph": convert(export(model, mode, 16), {})})
    np.testing.assert_allclose(run(network, weights, inputs, [6]), expected, rtol=1e-5, atol=1e-6)
