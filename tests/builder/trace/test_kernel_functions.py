"""Functions of models are found by the names of kernels that Transformers would have for them."""

from collections.abc import Mapping
from typing import Any

import pytest
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

from enginesmith.builder.trace.kernel_functions import kernel_name, opaque_functions
from enginesmith.builder.trace.modeling_modules import namespaces
from enginesmith.plugins.discovery import traced_functions


@pytest.fixture(scope="module")
def namespace() -> Mapping[str, Any]:
    """The module in which a model of Mamba-2 is written."""
    from transformers.models.mamba2 import modeling_mamba2

    return vars(modeling_mamba2)


def test_the_decorators_name_counts_and_not_the_functions(namespace: Mapping[str, Any]):
    assert kernel_name(namespace["mamba2_chunk_scan"]) == "mamba_chunk_scan_combined"
    assert kernel_name(namespace["pad_tensor_by_size"]) == "pad_tensor_by_size"


def test_functions_are_replaced_for_as_long_as_a_model_is_traced():
    kind: Any = CONFIG_MAPPING["mamba2"]
    config = kind(hidden_size=16, num_heads=4, head_dim=8, state_size=4, n_groups=1, num_hidden_layers=1, vocab_size=8)
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    model = model_class(config)
    spaces = [space for space in namespaces(model) if "causal_conv1d_fn" in space]
    before = [space["causal_conv1d_fn"] for space in spaces]
    assert before
    with opaque_functions(model):
        assert all(space["causal_conv1d_fn"] is traced_functions()["causal_conv1d_fn"] for space in spaces)
    assert [space["causal_conv1d_fn"] for space in spaces] == before
