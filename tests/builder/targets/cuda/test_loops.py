"""Generated kernels in Triton's interpreter, against NumPy. One network holds many: each makes some of the logits."""

import pytest
from standard_operations import ELEMENTWISE, OTHERS, assert_matches_numpy


@pytest.mark.parametrize("group", [ELEMENTWISE, OTHERS], ids=["elementwise", "others"])
def test_operations_match_numpy(group, run_network, small_network):
    kept = {name: item for name, item in group.items() if name != "layer_norm"}
    assert_matches_numpy(kept, run_network, small_network)
