"""Generated kernels in Triton's interpreter, against NumPy. One network holds many: each makes some of the logits."""

import numpy as np
import pytest
from standard_operations import ELEMENTWISE, IDS, OTHERS, PARAMETERS, SCALE, TABLE, body_of


@pytest.mark.parametrize("group", [ELEMENTWISE, OTHERS], ids=["elementwise", "others"])
def test_operations_match_numpy(group, run_network, small_network):
    group = {name: item for name, item in group.items() if name != "layer_norm"}
    x = TABLE[IDS].astype(np.float64)
    declared = "float[T, 24] y_tile" * ("tile" in group)
    found = run_network(small_network(body_of(group), 24 * len(group), PARAMETERS, declared), IDS)
    for index, (name, (_, expected)) in enumerate(group.items()):
        part = found[:, 24 * index : 24 * (index + 1)]
        np.testing.assert_allclose(part, expected(x, SCALE), rtol=2e-5, atol=2e-5, err_msg=name)
