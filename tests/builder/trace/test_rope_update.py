"""Rope types that change with the length of a sequence, fixed by max_seq_len."""

import numpy as np
import pytest
import torch
from evaluate_network import evaluate
from safetensors.numpy import load_file
from tiny_models import FAMILIES
from transformers import AutoModelForCausalLM

from enginesmith.builder.trace.config_facts import depends_on_length


def distances(family, max_seq_len, lengths, traced, tiny_checkpoint):
    """Of sequences that are packed together, each from what Transformers makes of it alone."""
    folder = tiny_checkpoint(family)
    rng = np.random.default_rng(1)
    sequences = [rng.integers(3, 128, length).tolist() for length in lengths]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    logits = evaluate(traced(family, max_seq_len), load_file(folder / "model.safetensors"), sequences)
    found = np.split(logits, np.cumsum(lengths)[:-1])
    with torch.no_grad():
        expected = [model(torch.tensor([sequence])).logits[0].numpy() for sequence in sequences]
    return max(float(np.abs(a - b).max() / np.ptp(b)) for a, b in zip(found, expected, strict=True))


def test_longrope_takes_the_factors_of_each_sequence(traced, tiny_checkpoint):
    assert distances("phi3-longrope", 128, [20, 32, 33, 40, 5], traced, tiny_checkpoint) < 1e-4
    assert distances("phi3-longrope", 32, [32, 7], traced, tiny_checkpoint) < 1e-4
    assert traced("phi3-longrope", 128).long_rope_after == 32
    assert traced("phi3-longrope", 32).long_rope_after is None
    assert traced("llama-yarn", 128).long_rope_after is None


def test_dynamic_changes_nothing_up_to_the_models_own_limit(traced, tiny_checkpoint):
    assert distances("llama-dynamic", 16, [16, 9], traced, tiny_checkpoint) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_only_some_configs_depend_on_length(family):
    assert depends_on_length(FAMILIES[family]) == (family in ("phi3-longrope", "llama-dynamic"))


def test_nested_rope_parameters_are_looked_into():
    assert depends_on_length({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}})
    assert depends_on_length({"rope_scaling": {"type": "su"}})
    assert not depends_on_length({"rope_scaling": {"type": "linear"}, "note": "dynamic"})
