"""Input groups and folds: complete, as expected of known families, and true in Transformers' own arithmetic."""

from functools import cache

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, MIXTURES

from enginesmith.builder.network import Network
from enginesmith.builder.quantize.feeds import Feeds, InputGroup, read_feeds
from enginesmith.builder.trace.trace import trace

Parameters = dict[str, np.ndarray]
TOKENS = torch.tensor([[1, 5, 3, 8, 1, 100, 7, 2], [9, 4, 4, 2, 77, 31, 6, 11]])


@cache
def traced(family: str) -> Network:
    return trace(FAMILIES[family], max_seq_len=128)


@cache
def feeds(family: str) -> Feeds:
    return read_feeds(traced(family))


class Reference:
    """A family's tiny model in float64, run with parameters given by name."""

    def __init__(self, folder) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        self.owned = dict(self.model.named_parameters())
        self.parameters: Parameters = {name: p.detach().float().numpy().copy() for name, p in self.owned.items()}
        self.expected = self.logits(self.parameters)

    def logits(self, parameters: Parameters) -> torch.Tensor:
        changed = {name: torch.from_numpy(array).double() for name, array in parameters.items()}
        with torch.no_grad():
            return torch.func.functional_call(self.model, changed, (TOKENS,), tie_weights=True).logits

    def distance(self, parameters: Parameters) -> float:
        """The worst distance of a logit, relative to the spread of all."""
        return float((self.logits(parameters) - self.expected).abs().max() / self.expected.std())


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def reference(family: str, tiny_checkpoint) -> Reference:
    return Reference(tiny_checkpoint(family))


def random_scale(group: InputGroup, seed: int) -> np.ndarray:
    """Between 1/4 and 4, equal where channels are tied."""
    k = group.layers[0].k
    scale = np.exp2(np.random.default_rng(seed).uniform(-2, 2, k)).astype(np.float32)
    tied = None if group.fold is None else group.fold.tied
    return scale if tied is None else scale[tied]


def rescale(group: InputGroup, parameters: Parameters, scale: np.ndarray) -> None:
    assert group.fold is not None
    group.fold.apply(parameters, scale)
    for layer in group.layers:
        parameters[layer.parameter] = parameters[layer.parameter] * scale


def test_every_linear_is_in_one_group(family, reference):
    modules = dict(reference.model.named_modules())
    linears = {name: module for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    layers = [layer for group in read_feeds(traced(family)).groups for layer in group.layers]
    assert sorted(layer.name for layer in layers) == sorted(linears)
    assert {layer.name: (layer.n, layer.k) for layer in layers} == {
        n: tuple(m.weight.shape) for n, m in linears.items()
    }
    assert all(linears[layer.name].weight is reference.owned[layer.parameter] for layer in layers)
    assert [layer.name for layer in layers if layer.is_head] == ["lm_head"]


def test_groups_come_in_order_of_execution(family, reference):
    ran: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in reference.model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    reference.logits(reference.parameters)
    for handle in handles:
        handle.remove()
    first = [group.layers[0].name for group in feeds(family).groups]
    assert first == [name for name in ran if name in first]


def test_all_folds_at_once_leave_the_logits(family, reference):
    parameters = dict(reference.parameters)
    for seed, group in enumerate(feeds(family).groups):
        if group.fold is not None:
            rescale(group, parameters, random_scale(group, seed))
    assert reference.distance(parameters) < 1e-5


def test_each_fold_leaves_the_logits_and_changes_what_it_says(family, reference):
    for seed, group in enumerate(feeds(family).groups):
        if group.fold is None:
            continue
        parameters = dict(reference.parameters)
        rescale(group, parameters, random_scale(group, seed))
        assert reference.distance(parameters) < 1e-5, group
        changed = {name for name, array in parameters.items() if array is not reference.parameters[name]}
        assert changed == {*group.fold.parameters, *(layer.parameter for layer in group.layers)}


def test_a_fold_divides_the_input(family, reference):
    """Without the columns' share the logits move: the tests above would see a fold that does nothing."""
    found = [(group, group.fold) for group in feeds(family).groups if group.fold is not None]
    assert found or family == "gpt2"
    for group, fold in found[-1:]:
        parameters = dict(reference.parameters)
        fold.apply(parameters, random_scale(group, 0))
        assert reference.distance(parameters) > 1e-3


Q_K_V, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
NONE: tuple[str, ...] = ()
EXPECTED = {  # of the second layer: its groups, and what absorbs a scale
    "llama": {
        Q_K_V: ("input_layernorm.weight",),
        ("o_proj",): ("self_attn.v_proj.weight",),
        GATE_UP: ("post_attention_layernorm.weight",),
        ("down_proj",): ("mlp.up_proj.weight",),
    },
    "gemma3_text": {
        Q_K_V: ("input_layernorm.weight",),
        ("o_proj",): ("self_attn.v_proj.weight",),
        GATE_UP: ("pre_feedforward_layernorm.weight",),
        ("down_proj",): ("mlp.up_proj.weight",),
    },
    "phi3": {
        ("qkv_proj",): ("input_layernorm.weight",),
        ("o_proj",): ("self_attn.qkv_proj.weight",),
        ("gate_up_proj",): ("post_attention_layernorm.weight",),
        ("down_proj",): ("mlp.gate_up_proj.weight",),
    },
    "gpt_neox": {
        ("query_key_value",): ("input_layernorm.weight", "input_layernorm.bias"),
        ("dense",): ("attention.query_key_value.weight", "attention.query_key_value.bias"),
        ("dense_h_to_4h",): ("post_attention_layernorm.weight", "post_attention_layernorm.bias"),
        ("dense_4h_to_h",): NONE,  # after GELU
    },
    "opt": {
        Q_K_V: ("self_attn_layer_norm.weight", "self_attn_layer_norm.bias"),
        ("out_proj",): ("self_attn.v_proj.weight", "self_attn.v_proj.bias"),
        ("fc1",): ("final_layer_norm.weight", "final_layer_norm.bias"),
        ("fc2",): ("fc1.weight", "fc1.bias"),  # after ReLU
    },
    "nemotron": {
        Q_K_V: ("input_layernorm.weight", "input_layernorm.bias"),
        ("o_proj",): ("self_attn.v_proj.weight",),
        ("up_proj",): ("post_attention_layernorm.weight", "post_attention_layernorm.bias"),
        ("down_proj",): NONE,  # after ReLU squared
    },
    "olmo2": {
        Q_K_V: NONE,  # the residual itself
        ("o_proj",): ("self_attn.v_proj.weight",),
        GATE_UP: NONE,
        ("down_proj",): ("mlp.up_proj.weight",),
    },
    "cohere": {
        Q_K_V + GATE_UP: ("input_layernorm.weight",),  # attention and MLP side by side
        ("o_proj",): ("self_attn.v_proj.weight",),
        ("down_proj",): ("mlp.up_proj.weight",),
    },
    "gpt2": {},
}


@pytest.mark.parametrize("family", EXPECTED)
def test_known_families(family):
    found = {}
    for group in feeds(family).groups:
        prefix, is_second, _ = group.layers[0].name.partition(".1.")
        if is_second:
            names = group.fold.parameters if group.fold else NONE
            assert all(name.startswith(f"{prefix}.1.") for name in names)
            layers = tuple(layer.name.rpartition(".")[2] for layer in group.layers)
            found[layers] = tuple(name.removeprefix(f"{prefix}.1.") for name in names)
    assert found == EXPECTED[family]


@pytest.mark.parametrize(("family", "is_tied"), [("llama", False), ("gemma3_text", True), ("gpt2", True)])
def test_the_head(family, is_tied):
    group = feeds(family).groups[-1]
    assert [layer.name for layer in group.layers] == ["lm_head"]
    assert (group.fold is None) is is_tied
    assert (group.layers[0].parameter == "lm_head.weight") is not is_tied


def test_query_heads_share_channels_of_their_value_head():
    """Four query heads of 16, two value heads."""
    fold = feeds("llama").groups[1].fold
    assert fold is not None
    assert fold.tied is not None
    heads = fold.tied.reshape(4, 16)
    np.testing.assert_array_equal(heads[[0, 2]], heads[[1, 3]])
    assert len(np.unique(fold.tied)) == 32


@pytest.mark.parametrize(("family", "rows"), [("phi3", range(96, 128)), ("gpt_neox", range(32, 48))])
def test_values_are_rows_of_a_fused_weight(family, rows):
    """phi3: behind 64 rows of queries and 32 of keys; gpt_neox: each head has its queries, keys and values."""
    fold = feeds(family).groups[1].fold
    assert fold is not None
    channels = fold.divisors[0].channels[:, 0]
    period = 48 if family == "gpt_neox" else 128
    is_scaled = np.isin(np.arange(len(channels)) % period, rows)
    np.testing.assert_array_equal(channels >= 0, is_scaled)


def test_layers_of_another_kind_are_told():
    others = feeds("gpt2").others
    assert len(others) == 8
    assert others["transformer.h.0.mlp.c_fc"] == "its weight is stored as [inputs, outputs]"


def test_the_network_stays():
    network = traced("llama")
    before = [(node.op_type, node.name) for node in network.graph]
    read_feeds(network)
    assert [(node.op_type, node.name) for node in network.graph] == before


def test_routers_and_experts_are_left_alone():
    feeds = read_feeds(trace(MIXTURES["qwen2_moe"], max_seq_len=128))
    layers = [layer.name for group in feeds.groups for layer in group.layers]
    assert "model.layers.1.mlp.shared_expert.up_proj" in layers
    assert feeds.others["model.layers.1.mlp.gate"] == "it chooses experts"
    assert feeds.others["model.layers.1.mlp.experts"].startswith("no method reaches experts")
    assert not [name for name in layers if name.endswith(("mlp.gate", "experts"))]
