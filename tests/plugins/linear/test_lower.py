"""Which linear layers a build rounds, on every target."""

import numpy as np
import pytest
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.lower import lower
from enginesmith.plugins.discovery import kernels

SIZE = 64


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_layer_that_chooses_experts_is_not_rounded(target: str) -> None:
    shapes = {"table": (8, SIZE), "inner": (SIZE, SIZE), "router": (4, SIZE)}
    shapes |= {"up": (4, SIZE, SIZE), "down": (4, SIZE, SIZE), "head": (8, SIZE)}
    body = """
        two = Constant<value_ints=[2]>()  x = Gather<axis=0>(table, input_ids)
        h = enginesmith.Linear<activation="relu">(x, inner)  scores = enginesmith.Linear(h, router)
        weights, indices = TopK<axis=-1>(scores, two)
        y = enginesmith.Experts<activation="relu">(h, indices, weights, , up, down)
        rows = Gather<axis=0>(y, logits_rows)  logits = enginesmith.Linear(rows, head)
    """
    declared = f"float[T, {SIZE}] h, float[T, 4] scores, float[T, {SIZE}] y, float[R, {SIZE}] rows"
    small = SmallNetwork(body, 8, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, declared)
    config = BuildConfig(weights="int4", max_num_tokens=16, max_batch_size=8, check=False)
    weights = lower(small.network(), config, kernels(target)).linear_weights
    types = {weight.sources[0].name: str(weight.scheme.weight.type) for weight in weights}
    assert types == {"inner": "int4", "router": "bf16", "up": "int4", "down": "int4", "head": "int8"}
