"""Running decoder layer by decoder layer gives what the whole model gives."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES

from enginesmith.builder.bind import bind_network
from enginesmith.builder.quantize.blocks import block_of, blocks_of
from enginesmith.builder.quantize.layered import LayeredModel
from enginesmith.builder.reference import load_reference
from enginesmith.builder.trace.trace import trace
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint

MAX_SEQ_LEN = 16
LENGTH = 12


def layered(checkpoint: Checkpoint) -> LayeredModel:
    network = trace(checkpoint.config, max_seq_len=MAX_SEQ_LEN)
    weights = bind_network(network, checkpoint, None)
    return LayeredModel(network, weights, LENGTH)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_whole_model(tiny_checkpoint: Callable[[str], Path], family: str) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint(family))
    model = layered(checkpoint)
    tokens = np.random.default_rng(0).integers(3, 128, (3, LENGTH))
    hidden = model.embed(tokens)
    for index in range(len(model.blocks)):
        model.load(index)
        hidden = model.run(index, hidden)
        model.unload(index)
    assert all(parameter.is_meta for parameter in model.module("").parameters())
    whole = load_reference(checkpoint)
    with torch.inference_mode():
        expected = whole(input_ids=torch.from_numpy(tokens), use_cache=False).logits
    torch.testing.assert_close(model.head(hidden), expected, atol=1e-5, rtol=1e-5)


def test_assigned_parameters_are_used(tiny_checkpoint: Callable[[str], Path]) -> None:
    model = layered(open_checkpoint(tiny_checkpoint("llama")))
    hidden = model.embed(np.arange(3, 3 + LENGTH)[None])
    parameters = model.load(0)
    before = model.run(0, hidden)
    name = "model.layers.0.mlp.down_proj.weight"
    model.assign({name: np.zeros_like(parameters[name])})
    assert not torch.equal(model.run(0, hidden), before)


def test_blocks_are_found_by_name() -> None:
    names = ["model.layers.10.mlp.experts.2.w1.weight", "model.layers.2.a.weight", "lm_head.weight"]
    assert blocks_of(names) == ["model.layers.2", "model.layers.10"]
    assert block_of("lm_head.weight") is None
