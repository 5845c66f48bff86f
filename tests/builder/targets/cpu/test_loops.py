"""Standard operations, built and run, against NumPy. One engine holds many of them: each makes some of the logits."""

import math

import numpy as np
import pytest
from standard_operations import ELEMENTWISE, IDS_BELOW_13, OTHERS, SCALE, TABLE, assert_matches_numpy, erf


@pytest.mark.parametrize("group", [ELEMENTWISE, OTHERS], ids=["elementwise", "others"])
def test_operations_match_numpy(group, run_network, small_network):
    assert_matches_numpy(group, run_network, small_network)


def test_rows_that_do_not_fill_vectors(run_network, small_network):
    """13 elements: one whole vector of 8 and 5 lanes beside."""
    table, bias = TABLE[:, :13], SCALE[:13]
    body = """
        two = Constant<value_float=2.0>()  last = Constant<value_ints=[-1]>()
        x = Gather<axis=0>(table, input_ids)  a = Tanh(x)  b = Mul(a, bias)  m = ReduceMax<keepdims=1>(x, last)
        c = Add(b, m)  d = Gelu(c)  e = Sigmoid(d)  f = Max(e, a)  g = Div(f, two)
        logits = Gather<axis=0>(g, logits_rows)
    """
    x = table[IDS_BELOW_13].astype(np.float64)
    c = np.tanh(x) * bias + x.max(-1, keepdims=True)
    expected = np.maximum(1 / (1 + np.exp(-0.5 * c * (1 + erf(c / math.sqrt(2))))), np.tanh(x)) / 2
    found = run_network(small_network(body, 13, {"table": table, "bias": bias}), IDS_BELOW_13)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
