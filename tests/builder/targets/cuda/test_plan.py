"""What the cuda target refuses before anything is lowered."""

import numpy as np
import pytest
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cuda import plan
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.errors import UnsupportedModelError


def test_operations_without_kernels_for_gpus_are_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    body = """
    a = Gather<axis=0>(table, input_ids)  b = enginesmith.Linear(a, weight)  c = enginesmith.Linear(b, weight)
    logits = Gather<axis=0>(c, logits_rows)
    """
    parameters = {name: np.zeros((24, 24), np.float32) for name in ("table", "weight")}
    network = SmallNetwork(body, 24, parameters, "float[T, 24] b, float[T, 24] c")
    found = plan.kernels
    monkeypatch.setattr(plan, "kernels", lambda target: [k for k in found(target) if k.operation != "Linear"])
    with pytest.raises(UnsupportedModelError) as error:
        plan.plan(network.network(), BuildConfig(target=CudaOptions(sm="90")), 90, 64)
    assert str(error.value) == (
        "TestForCausalLM needs Linear, for which the cuda target has no kernels yet; build it with --target cpu"
    )
