"""Rope types that change with the length of a sequence, fixed by max_seq_len."""

import numpy as np
import pytest
import torch
from evaluate_network import evaluate
from safetensors.numpy import load_file
from tiny_models import FAMILIES
from transformers import AutoModelForCausalLM

from enginesmith.builder.trace.config_facts import depends_on_length


def distances(family, max_seq_len, length, traced, tiny_checkpoint):
    folder = tiny_checkpoint(family)
    sequence = np.random.default_rng(1).integers(3, 128, length).tolist()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = model(torch.tensor([sequence])).logits[0].numpy()
    logits = evaluate(traced(family, max_seq_len), load_file(folder / "model.safetensors"), [sequence])
    return np.abs(logits - expected).max() / np.ptp(expected)


def test_longrope_takes_long_factors_past_the_original_length(traced, tiny_checkpoint):
    assert distances("phi3-longrope", 64, 40, traced, tiny_checkpoint) < 1e-4
    assert distances("phi3-longrope", 32, 32, traced, tiny_checkpoint) < 1e-4
    assert distances("phi3-longrope", 32, 40, traced, tiny_checkpoint) > 1e-2


def test_dynamic_takes_the_base_of_the_longest_sequence(traced, tiny_checkpoint):
    assert distances("llama-dynamic", 40, 40, traced, tiny_checkpoint) < 1e-4
    assert distances("llama-dynamic", 16, 16, traced, tiny_checkpoint) < 1e-4
    assert distances("llama-dynamic", 16, 40, traced, tiny_checkpoint) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_only_some_configs_depend_on_length(family):
    assert depends_on_length(FAMILIES[family]) == (family in ("phi3-longrope", "llama-dynamic"))


def test_nested_rope_parameters_are_looked_into():
    assert depends_on_length({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}})
    assert depends_on_length({"rope_scaling": {"type": "su"}})
    assert not depends_on_length({"rope_scaling": {"type": "linear"}, "note": "dynamic"})
