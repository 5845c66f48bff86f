import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from enginesmith.checkpoint.gguf_file import GgufFile, GgufTensor
from enginesmith.checkpoint.gguf_rope import rope_from_gguf
from enginesmith.errors import CheckpointError

CONFIG = SimpleNamespace(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})


def gguf(scaling: dict | None = None, factors: list[float] | None = None) -> GgufFile:
    metadata = {"general.architecture": "llama"}
    metadata |= {f"llama.rope.scaling.{key}": value for key, value in (scaling or {}).items()}
    data = np.array(factors or [], np.float32).view(np.uint8)
    tensors = [GgufTensor("rope_freqs.weight", (len(factors),), 0, data)] if factors else []
    return GgufFile(Path("x.gguf"), metadata, tensors)


def llama3_factors(factor: float, dims: int = 64, theta: float = 500000.0, original: int = 8192) -> list[float]:
    """As llama.cpp's converter computes them."""
    result = []
    for i in range(0, dims, 2):
        wavelength = 2 * math.pi * theta ** (i / dims)
        if wavelength < original / 4:
            result.append(1.0)
        elif wavelength > original:
            result.append(factor)
        else:
            smooth = (original / wavelength - 1) / (4 - 1)
            result.append(1 / ((1 - smooth) / factor + smooth))
    return result


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("dims", [64, 128])
def test_llama3_is_recognised(factor: float, dims: int) -> None:
    assert rope_from_gguf(gguf(factors=llama3_factors(factor, dims)), CONFIG) == {
        "rope_theta": 500000.0,
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def test_other_divisors_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        rope_from_gguf(gguf(factors=llama3_factors(8.0, original=4096)), CONFIG)


@pytest.mark.parametrize("file", [gguf(), gguf({"type": "none"}), gguf(factors=[1.0] * 32)])
def test_no_scaling(file: GgufFile) -> None:
    assert rope_from_gguf(file, CONFIG) is None


def test_layers_of_two_kinds() -> None:
    """Scaling is that of full attention, and layers with a window may have their own base."""
    local, full = ({"rope_type": "default", "rope_theta": theta} for theta in (10000.0, 1e6))
    config = SimpleNamespace(rope_parameters={"sliding_attention": local, "full_attention": full})
    assert rope_from_gguf(gguf(), config) is None
    assert rope_from_gguf(gguf({"type": "linear", "factor": 8.0}), config) == {
        "sliding_attention": local,
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    file = gguf()
    file.metadata["llama.rope.freq_base_swa"] = 500.0
    assert rope_from_gguf(file, config) == {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": full,
    }


def test_linear_and_yarn() -> None:
    assert rope_from_gguf(gguf({"type": "linear", "factor": 4.0}), CONFIG) == {
        "rope_theta": 500000.0,
        "rope_type": "linear",
        "factor": 4.0,
    }
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 32768}
    rope = rope_from_gguf(gguf(scaling), CONFIG)
    assert rope is not None
    assert (rope["rope_type"], rope["original_max_position_embeddings"]) == ("yarn", 32768)


@pytest.mark.parametrize(
    "scaling",
    [{"type": "longrope", "factor": 2.0}, {"type": "yarn"}, {"type": "yarn", "factor": 2.0, "attn_factor": 3}],
)
def test_scaling_that_would_be_lost_is_refused(scaling: dict) -> None:
    with pytest.raises(CheckpointError, match="rotary scaling"):
        rope_from_gguf(gguf(scaling), CONFIG)
