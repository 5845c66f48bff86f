"""What cannot be expressed is refused, and named."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from evaluate_network import run
from tiny_models import FAMILIES
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from enginesmith.builder.trace.export import export
from enginesmith.builder.trace.rotary import fused_rotary  # noqa: F401
from enginesmith.builder.trace.trace_model import convert, trace_model
from enginesmith.errors import UnsupportedModelError
from enginesmith.progress import NoProgress


def build(**config):
    return trace_model(config, 16, NoProgress())


def test_remote_code_is_never_run():
    with pytest.raises(UnsupportedModelError, match=r"'brand_new'.*auto_map.*never run"):
        build(model_type="brand_new", auto_map={"AutoModelForCausalLM": "modeling.Model"})


def test_a_config_without_a_model_type_is_refused():
    with pytest.raises(UnsupportedModelError, match="model_type"):
        build(hidden_size=8)


def test_a_model_that_is_no_causal_language_model_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"'vit' has no causal language model"):
        build(model_type="vit")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bart"}, "'bart' is an encoder-decoder model .* does not run alone"),
        ({**FAMILIES["llama"], "num_attention_heads": 7}, r"7|heads"),
    ],
)
def test_a_model_with_an_operation_we_lack_is_refused(config, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        build(**config)


def test_known_types_are_traced_by_their_own_class_whatever_auto_map_says():
    config = {
        **FAMILIES["llama"],
        "auto_map": {"AutoModelForCausalLM": "evil.Model"},
        "quantization_config": {"bits": 4},
    }
    assert build(**config).architecture == "LlamaForCausalLM"


class Toy(nn.Module):
    """A "language model" whose one operation the test gives."""

    def __init__(self, operation):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.operation = operation

    def forward(self, input_ids, position_ids, use_cache, logits_to_keep):
        x = self.operation(self.embed(input_ids), position_ids)
        return type("Output", (), {"logits": x[:, logits_to_keep]})()


def network_of(operation):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return convert(export(Toy(operation).eval().requires_grad_(False), mode, 16), {})


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            lambda x, p: torch.stack([x[:, t] for t in range(x.shape[1])], 1),
            "fixes the number of tokens, as a recurrence",
        ),
        (lambda x, p: x.cumsum(1), "across tokens"),
        (lambda x, p: x - x.mean(1, keepdim=True), "across tokens"),
        (lambda x, p: x.softmax(1), "across tokens"),
        (lambda x, p: x.transpose(1, 2) @ x.softmax(2) @ x.new_ones(4, 4), "across tokens"),
        (lambda x, p: torch.cat([x, x], 1)[:, : x.shape[1]], "across tokens"),
        (lambda x, p: x[:, torch.arange(x.shape[1])], "choice of tokens"),
        (lambda x, p: x + torch.arange(0, 2 * x.shape[1], 2)[None, :, None], "number of tokens"),
        (lambda x, p: x * x.shape[1], "number of tokens|token"),
        (lambda x, p: x[:, -1:].expand(x.shape), "token"),
        (lambda x, p: x + torch.fft.fft(x).real, "fft"),
    ],
)
def test_what_mixes_tokens_or_counts_them_is_refused(operation, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        network_of(operation)


def test_in_place_operations_are_taken_apart():
    def operation(x, p):
        y = x.clone()
        y.add_(1.0)
        return y * p[..., None]

    assert [node.op_type for node in network_of(operation)].count("Add") == 1


def test_values_of_constants_are_computed_while_tracing():
    graph = network_of(lambda x, p: x * (torch.arange(4).float().pow(2).sum() + 1))
    assert [node.op_type for node in graph if node.op_type in ("Mul", "Add", "Pow", "ReduceSum")] == ["Mul"]


def decide_by_value(x, p):
    return x if bool((x.sum() > 0).item()) else -x


def test_nothing_but_the_error_is_printed(capfd, monkeypatch):
    monkeypatch.setattr("enginesmith.builder.trace.trace_model.make_skeleton", lambda *_: Toy(decide_by_value))
    with pytest.raises(UnsupportedModelError, match="values of tokens decide") as caught:
        build(model_type="toy")
    assert len(str(caught.value)) < 200
    assert capfd.readouterr() == ("", "")


def test_experts_that_are_not_understood_are_named():
    config = {"model_type": "jetmoe", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 128, "kv_channels": 16}
    with pytest.raises(UnsupportedModelError, match=r"has a mixture of experts \(JetMoeParallelExperts\)"):
        build(**config)


def test_constants_may_be_made_by_any_operator():
    graph = network_of(lambda x, p: x * torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(0.95)))
    assert [node.op_type for node in graph if node.op_type not in ("Gather", "Reshape")] == ["Mul"]


@pytest.mark.parametrize("unbiased", [True, False])
def test_spread_along_an_axis(unbiased):
    def operation(x, p):
        return x - torch.std(x, dim=-1, keepdim=True, unbiased=unbiased) + x.var(-1, keepdim=True, unbiased=unbiased)

    model = Toy(operation).eval().requires_grad_(False)
    weights = {name: tensor.clone().numpy() for name, tensor in model.state_dict().items()}
    rows = torch.arange(3)
    with torch.no_grad():
        expected = model(torch.tensor([[3, 1, 5]]), rows[None], False, rows).logits[0].numpy()
    graph = convert(export(model, FakeTensorMode(allow_non_fake_inputs=True), 16), {})
    inputs = {"input_ids": np.array([3, 1, 5]), "position_ids": np.arange(3), "logits_rows": np.arange(3)}
    np.testing.assert_allclose(run(SimpleNamespace(graph=graph), weights, inputs, [3]), expected, rtol=1e-5)


def test_every_other_element_is_written():
    def operation(x, p):
        y = x.clone()
        y[..., 1::2] = 2 * x[..., :2]
        return y

    graph = network_of(operation)
    first = next(node for node in graph if node.op_type == "Concat").inputs[0]
    assert first is not None
    assert first.shape is not None
    assert first.shape[-1] == 1


def test_the_text_part_of_a_model_that_sees_images_is_traced():
    text = {key: value for key, value in FAMILIES["mistral"].items() if key != "architectures"}
    vision = {"model_type": "pixtral", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = trace_model({"model_type": "mistral3", "text_config": text, "vision_config": vision}, 16, NoProgress())
    used = {name for name, value in network.graph.initializers.items() if value.const_value is None}
    assert {name for name in network.parameters if "language_model" in name or "lm_head" in name} == used
    assert any("vision_tower" in name for name in network.parameters)
