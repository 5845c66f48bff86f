"""`check`: a pass keeps outputs, shapes and types."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from small_networks import NetworkBuilder, name_of, random_feeds, run_network


@pytest.fixture
def net() -> NetworkBuilder:
    return NetworkBuilder()


@pytest.fixture
def check() -> Callable[[NetworkBuilder, Callable[[ir.Graph], int]], int]:
    """Apply a pass: outputs stay within 1e-5 and every value keeps a true shape and type. Returns the pass's count."""

    def apply(net: NetworkBuilder, run_pass: Callable[[ir.Graph], int]) -> int:
        feeds = random_feeds(net.graph)
        before = run_network(net.graph, feeds)
        names = [name_of(value) for value in net.graph.outputs]
        expected = [before[name] for name in names]
        count = run_pass(net.graph)
        after = run_network(net.graph, feeds)
        assert [value.name for value in net.graph.outputs] == names
        for name, array in zip(names, expected, strict=True):
            np.testing.assert_allclose(after[name], array, rtol=1e-5, atol=1e-5)
        return count

    return apply


@pytest.fixture(scope="session")
def new_network() -> type[NetworkBuilder]:
    return NetworkBuilder
