"""Traced networks against the Transformers models they came from."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from evaluate_network import evaluate, run
from safetensors.numpy import load_file
from tiny_models import FAMILIES
from transformers import AutoModelForCausalLM

DISTANCE = 1e-4  # of the logits' spread
LENGTHS = (11, 1, 8)


def reference(folder, sequences):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return np.concatenate([model(torch.tensor([s])).logits[0].numpy() for s in sequences])


def random_sequences(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 128, length).tolist() for length in lengths]


def distance(logits, expected):
    return np.abs(logits - expected).max() / np.ptp(expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_give_the_logits_of_transformers(family, traced, tiny_checkpoint):
    folder = tiny_checkpoint(family)
    network = traced(family)
    weights = load_file(folder / "model.safetensors")
    sequences = random_sequences(LENGTHS)
    expected = reference(folder, sequences)

    assert distance(evaluate(network, weights, sequences), expected) < DISTANCE
    assert np.ptp(expected) > 1, "these logits could not tell a wrong network from a right one"


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_the_checkpoint(family, traced, tiny_checkpoint):
    network = traced(family)
    stored = load_file(tiny_checkpoint(family) / "model.safetensors")

    assert {name: p.shape for name, p in network.parameters.items()} == {n: t.shape for n, t in stored.items()}
    used = {name for name, value in network.graph.initializers.items() if value.const_value is None}
    assert used == set(network.parameters)


@pytest.mark.parametrize("family", FAMILIES)
def test_graph_keeps_the_conventions(family, traced):
    network = traced(family)
    graph = network.graph
    inputs = {value.name: (value.shape, value.dtype) for value in graph.inputs}
    ids = ir.DataType.INT64
    assert inputs == {
        "input_ids": (ir.Shape(["T"]), ids),
        "position_ids": (ir.Shape(["T"]), ids),
        "logits_rows": (ir.Shape(["R"]), ids),
    }
    (logits,) = graph.outputs
    assert (logits.name, tuple(logits.shape)) == ("logits", tuple(ir.Shape(["R", network.vocab_size])))
    for node in graph:
        assert node.domain in ("", "enginesmith")
        assert not node.metadata_props
        assert node.op_type not in ("Shape", "Range", "Identity", "Constant", "Squeeze", "Unsqueeze")
        for value in node.outputs:
            assert value.dtype is not None
            assert {str(d.value) for d in value.shape if not isinstance(d, int)} <= {"T", "R"}
    names = [value.name for node in graph for value in node.outputs] + list(graph.initializers)
    assert len(names) == len(set(names))
    layers = [node.attributes["cache_layer"].as_int() for node in graph if node.op_type == "PagedAttention"]
    assert layers == list(range(network.num_layers))


def test_only_the_rows_wanted_come_out(traced, tiny_checkpoint):
    network = traced("qwen2")
    weights = load_file(tiny_checkpoint("qwen2") / "model.safetensors")
    inputs = {"input_ids": np.arange(3, 12), "position_ids": np.arange(9)}
    everything = run(network, weights, {**inputs, "logits_rows": np.arange(9)}, [9])
    some = run(network, weights, {**inputs, "logits_rows": np.array([7, 2])}, [9])
    np.testing.assert_allclose(some, everything[[7, 2]], rtol=1e-5, atol=1e-5)


def test_softcaps_are_seen(traced, tiny_checkpoint):
    """Losing a softcap must move these logits far past the tolerance: else the comparison above shows nothing."""
    network = traced("gemma2")
    weights = load_file(tiny_checkpoint("gemma2") / "model.safetensors")
    sequences = random_sequences(LENGTHS)
    expected = evaluate(network, weights, sequences)
    node = next(node for node in network.graph if node.op_type == "PagedAttention")
    softcap = node.attributes["softcap"]
    node.attributes["softcap"] = ir.AttrFloat32("softcap", 0.0)
    try:
        changed = evaluate(network, weights, sequences)
    finally:
        node.attributes["softcap"] = softcap
    assert distance(changed, expected) > 100 * DISTANCE


@pytest.mark.parametrize(
    ("family", "windows"),
    [("llama", [0, 0]), ("mistral", [4, 4]), ("gemma2", [4, 0, 4, 0]), ("gemma3_text", [4, 0, 4, 0]), ("phi3", [5, 5])],
)
def test_windows_of_the_layers(family, windows, traced):
    nodes = [node for node in traced(family).graph if node.op_type == "PagedAttention"]
    assert [node.attributes["window"].as_int() for node in nodes] == windows
    assert all(node.attributes["causal"].as_int() == 1 for node in nodes)


@pytest.mark.parametrize(
    ("family", "style", "rotary_dim", "cos_stride"),
    [
        ("llama", "neox", 16, 1), ("cohere", "gptj", 16, 2), ("glm4", "gptj", 8, 1), ("gpt_neox", "neox", 8, 1),
        ("stablelm", "neox", 4, 1), ("nemotron", "neox", 8, 1),
    ],
)  # fmt: skip
def test_rotary_forms(family, style, rotary_dim, cos_stride, traced):
    nodes = [node for node in traced(family).graph if node.op_type == "RotaryEmbedding"]
    forms = {(n.attributes["style"].as_string(), n.attributes["rotary_dim"].as_int()) for n in nodes}
    assert len(nodes) == 2 * traced(family).num_layers
    assert forms == {(style, rotary_dim)}
    assert {n.attributes["cos_stride"].as_int() for n in nodes} == {cos_stride}


@pytest.mark.parametrize(("family", "count"), [("llama", 5), ("qwen3", 9), ("olmo2", 9), ("gemma2", 17)])
def test_every_rms_norm_is_one_node(family, count, traced):
    nodes = [node for node in traced(family).graph if node.op_type == "RMSNorm"]
    assert len(nodes) == count
    assert {n.attributes["offset"].as_float() for n in nodes} == {1.0 if family == "gemma2" else 0.0}


@pytest.mark.parametrize(
    ("family", "count"), [("gpt2", 5), ("cohere", 3), ("opt", 5), ("nemotron", 5), ("starcoder2", 5)]
)
def test_every_layer_norm_is_one_node(family, count, traced):
    assert sum(node.op_type == "LayerNormalization" for node in traced(family).graph) == count


def test_ties(traced):
    assert traced("gemma2").tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert traced("llama").tied == {}
    assert traced("gpt_neox").tied == {}
    assert traced("gpt2").base_prefix == "transformer"
    assert "attn.bias" in traced("gpt2").ignorable_unexpected
