"""Networks of standard operations, lowered for the cuda target and interpreted."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from cuda_program import CudaProgram
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig

CONFIG = BuildConfig(dtype="fp32", max_num_tokens=40, max_batch_size=16, kv_block_size=16, check=False)


@pytest.fixture
def run_network(tmp_path: Path) -> Callable[[SmallNetwork, Sequence[int]], np.ndarray]:
    """Lowers a network in float32, and gives the logits of every token of one step."""
    return lambda small, ids: CudaProgram(small.network(), small.parameters, CONFIG, tmp_path).run([ids])


@pytest.fixture
def small_network() -> type[SmallNetwork]:
    return SmallNetwork
