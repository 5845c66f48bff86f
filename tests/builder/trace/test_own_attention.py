"""Attention that a model spells out is read as the attention operation, or refused."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from enginesmith.builder.trace.export import export
from enginesmith.builder.trace.trace_model import convert
from enginesmith.errors import UnsupportedModelError

HEADS, TOKENS = 4, 64


def distances(tokens: int) -> Tensor:
    return torch.arange(tokens)[:, None] - torch.arange(tokens)


def causal(scores: Tensor, hidden: float = -1e4) -> Tensor:
    return scores.masked_fill(distances(scores.shape[-1]) < 0, hidden)


class Toy(nn.Module):
    """One layer of attention, whose scores the test makes of q k^T [1, H, T, T]; then a head."""

    def __init__(self, scores, weights=lambda w: w):
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.qkv = nn.Linear(16, 24 * HEADS)
        self.table = nn.Buffer(torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool)), persistent=False)
        self.scores, self.weights = scores, weights

    def forward(self, input_ids, position_ids, use_cache, logits_to_keep):
        x = self.qkv(self.embed(input_ids)).unflatten(-1, (HEADS, 24)).transpose(1, 2)
        q, k, v = x.split(8, -1)
        y = self.weights(self.scores(q @ k.mT, self).softmax(-1)) @ v
        return type("Output", (), {"logits": y.transpose(1, 2).flatten(2)[:, logits_to_keep]})()


def attention_of(*functions):
    toy = Toy(*functions).eval().requires_grad_(False)
    graph = convert(export(toy, FakeTensorMode(allow_non_fake_inputs=True), TOKENS), {})
    (node,) = [node for node in graph if node.op_type == "PagedAttention"]
    assert not {"Softmax", "MatMul"} & {other.op_type for other in graph}
    return node


def table(s: Tensor, toy: Toy) -> Tensor:
    return torch.where(toy.table[: s.shape[-1], : s.shape[-1]], s, torch.finfo(s.dtype).min)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (lambda s, _: causal(s), {"scale": 1.0}),
        (lambda s, _: causal(s / 8**0.5), {"scale": 8**-0.5}),
        (lambda s, _: causal(s * 0.3, -math.inf), {"scale": 0.3}),
        (table, {"scale": 1.0}),
        (lambda s, _: causal(5 * torch.tanh(s / 40)), {"softcap": 5.0, "scale": 0.125}),
        (lambda s, _: causal(s).masked_fill(distances(s.shape[-1]) >= 7, -1e9), {"window": 7}),
        (lambda s, _: causal(s).masked_fill(distances(s.shape[-1]) >= 50, -1e9), {"window": 50}),
        (
            lambda s, _: causal(s).masked_fill(
                torch.arange(s.shape[-1])[:, None] // 30 != torch.arange(s.shape[-1]) // 30, -1e9
            ),
            {"chunk": 30},
        ),
        (lambda s, _: s, {"causal": 0}),
    ],
)
def test_arguments_are_found_by_probing(scores, expected):
    node = attention_of(scores)
    found = {name: attribute.value for name, attribute in node.attributes.items()}
    usual = {"scale": 1.0, "softcap": 0.0, "window": 0, "chunk": 0, "causal": 1}
    assert {name: found[name] for name in usual} == pytest.approx({**usual, **expected}, rel=1e-5)
    assert len(node.inputs) == 3


@pytest.mark.parametrize("of_keys", [True, False], ids=["grows along the keys", "falls with the distance"])
def test_slopes(of_keys):
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01])

    def scores(s, _):
        steps = torch.arange(s.shape[-1]) if of_keys else -distances(s.shape[-1])
        return causal(s + slopes[:, None, None] * steps)

    node = attention_of(scores)
    given = node.inputs[4]
    assert given is not None
    assert given.const_value is not None
    assert given.const_value.numpy() == pytest.approx(slopes.numpy(), rel=1e-6)


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ((lambda s, _: causal(s + s.mT),), "something else|products"),
        ((lambda s, _: causal(s + s.square()),), "something else"),
        ((lambda s, _: causal(s * torch.arange(1, 1 + s.shape[-1])),), "something else"),
        ((lambda s, _: causal(s - distances(s.shape[-1]).abs().sqrt()),), "evenly"),
        ((lambda s, t: causal(s + t.embed.weight[0, 0]),), "more than queries, keys and positions"),
        ((lambda s, _: s.masked_fill(distances(s.shape[-1]) % 3 == 1, -1e9),), "neither causal"),
        ((lambda s, _: causal(s), lambda w: w.square()), "something else"),
        ((lambda s, _: causal(s), lambda w: w + w.mT), "more than its values"),
    ],
)
def test_what_is_no_attention_is_refused(functions, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        attention_of(*functions)


def test_a_sequence_longer_than_the_engine_ever_has_is_not_looked_at():
    """A window as long as the longest sequence hides nothing."""
    node = attention_of(lambda s, _: causal(s).masked_fill(distances(s.shape[-1]) >= TOKENS, -1e9))
    assert node.attributes["window"].as_int() == 0
