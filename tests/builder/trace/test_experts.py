"""What experts do with their gates is recognised by what they compute."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import CONFIG_MAPPING
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Experts
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts

from enginesmith.builder.trace.experts import recognise_gate
from enginesmith.plugins.experts.gate import Gate
from enginesmith.plugins.linear.activation_function import ActivationFunction


def made(kind: Any, model_type: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return kind(CONFIG_MAPPING[model_type](**options))


@pytest.mark.parametrize(
    ("module", "gate"),
    [
        (made(MixtralExperts, "mixtral"), Gate(ActivationFunction.SILU)),
        (made(MixtralExperts, "mixtral", hidden_act="gelu"), Gate(ActivationFunction.GELU)),
        (made(GptOssExperts, "gpt_oss"), Gate(ActivationFunction.QUICK_GELU, 7.0, 1.0)),
        (made(DeepseekV4Experts, "deepseek_v4", swiglu_limit=10.0), Gate(ActivationFunction.SILU, 10.0)),
        (made(NemotronHExperts, "nemotron_h"), Gate(ActivationFunction.RELU2, gated=False)),
        (made(MixtralExperts, "mixtral", hidden_act="mish"), None),
    ],
    ids=["silu", "gelu", "clamped, plus one", "clamped", "without a gate", "unknown"],
)
def test_gates(module: nn.Module, gate: Gate | None) -> None:
    assert recognise_gate(module) == gate
