"""The whole pipeline on traced networks: the same logits, and what is left to run in a layer."""

from collections import Counter

import numpy as np
import pytest
from evaluate_network import evaluate
from known import known
from tiny_models import FAMILIES

from enginesmith.builder.network import Network
from enginesmith.builder.passes.derived import is_derived
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.trace.trace import trace

VIEWS = {"Reshape", "Transpose", "Split"}
LAYER = {"RMSNorm": 2, "Linear": 3, "RotaryEmbedding": 2, "PagedAttention": 1, "GatedMLP": 1}
LAYERS = {  # what one of two layers takes, beside views
    "llama": LAYER,
    "qwen2": LAYER,
    "qwen3": {**LAYER, "RMSNorm": 4},
    "phi3": LAYER,
    "stablelm": {"LayerNormalization": 2, "Linear": 3, "RotaryEmbedding": 2, "PagedAttention": 1, "GatedMLP": 1},
    "cohere-qk_norm": {
        "LayerNormalization": 3, "Mul": 2, "Linear": 3, "RotaryEmbedding": 2, "PagedAttention": 1, "GatedMLP": 1,
    },
    "gpt_neox": {"LayerNormalization": 2, "Linear": 4, "RotaryEmbedding": 2, "PagedAttention": 1},
    "gpt2": {"LayerNormalization": 2, "Linear": 4, "PagedAttention": 1},
    "opt": {"LayerNormalization": 2, "Linear": 4, "PagedAttention": 1},
}  # fmt: skip


def traced(family: str) -> Network:
    return trace(FAMILIES[family], max_seq_len=128)


def random_weights(network: Network) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {p.name: (0.2 * rng.standard_normal(p.shape)).astype(np.float32) for p in network.parameters.values()}


@pytest.mark.parametrize("family", [*LAYERS, "gemma2", "granite", "olmo2", "glm4"])
def test_logits_stay(family):
    network = traced(family)
    weights = random_weights(network)
    sequences = [[5, 3, 8, 1, 100, 7], [9], [4, 4, 2]]
    before = evaluate(network, weights, sequences)
    optimize(network)
    after = evaluate(network, weights, sequences)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * before.std())


@pytest.mark.parametrize("family", LAYERS)
def test_what_a_layer_takes(family):
    network = traced(family)
    optimize(network)
    graph = network.graph
    nodes = [node for node in graph if node.op_type not in VIEWS and not all(map(is_derived, node.outputs))]
    attention = [i for i, node in enumerate(nodes) if node.op_type == "PagedAttention"]
    between = Counter(node.op_type for node in nodes[attention[0] : attention[1]])
    assert between == LAYERS[family]


def test_the_last_layer_computes_the_wanted_rows_only():
    network = traced("llama")
    optimize(network)
    nodes = list(network.graph)
    last = max(i for i, node in enumerate(nodes) if node.op_type == "PagedAttention")
    linears = [node for node in nodes[last:] if node.op_type in ("Linear", "GatedMLP")]
    assert [known(node.outputs[0].shape)[1] for node in linears] == ["R"] * 4


def test_nothing_is_left_to_do():
    network = traced("gpt2")
    assert any(optimize(network).values())
    counts = optimize(network)
    assert not any(counts.values()), counts
