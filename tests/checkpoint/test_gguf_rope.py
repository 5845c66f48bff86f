import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from enginesmith.checkpoint.gguf_file import GgufFile, GgufTensor
from enginesmith.checkpoint.gguf_rope import rope_from_gguf
from enginesmith.errors import CheckpointError

PLAIN = {"rope_type": "default", "rope_theta": 500000.0}
CONFIG = SimpleNamespace(
    rope_parameters={"rope_type": "default", "rope_theta": 1.0},
    hidden_size=256,
    num_attention_heads=4,
    max_position_embeddings=4096,
)


def gguf(scaling: dict | None = None, factors: list[float] | None = None) -> GgufFile:
    metadata: dict = {"general.architecture": "llama", "llama.rope.freq_base": 500000.0}
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
    assert rope_from_gguf(file, CONFIG) == PLAIN


def test_defaults_are_those_of_llama_cpp() -> None:
    """src/llama-model.cpp, load_hparams: base 10000; scaling by a factor is linear; its older name; 0 stands for 1."""
    bare = GgufFile(Path("x.gguf"), {"general.architecture": "llama"}, [])
    assert rope_from_gguf(bare, CONFIG) == {"rope_type": "default", "rope_theta": 10000.0}
    linear = {**PLAIN, "rope_type": "linear", "factor": 4.0}
    assert rope_from_gguf(gguf({"factor": 4.0}), CONFIG) == linear
    older = gguf()
    older.metadata["llama.rope.scale_linear"] = 4.0
    assert rope_from_gguf(older, CONFIG) == linear
    older.metadata["llama.rope.scaling.factor"] = 0.0  # the newer name counts
    assert rope_from_gguf(older, CONFIG) == PLAIN
    assert rope_from_gguf(gguf({"type": "none", "factor": 4.0}), CONFIG) == PLAIN
    yarn = rope_from_gguf(gguf({"type": "yarn", "factor": 4.0, "yarn_beta_fast": 16.0}), CONFIG)
    assert yarn == {
        **PLAIN,
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 16.0,
        "beta_slow": 1.0,
    }


def test_a_part_of_the_dimensions() -> None:
    file = gguf()
    file.metadata["llama.rope.dimension_count"] = 16
    with pytest.raises(CheckpointError, match="dimension_count is 16, and SimpleNamespace rotates all 64"):
        rope_from_gguf(file, CONFIG)
    part = SimpleNamespace(**{**vars(CONFIG), "rope_parameters": {"rope_theta": 1.0, "partial_rotary_factor": 0.5}})
    assert rope_from_gguf(file, part) == {**PLAIN, "partial_rotary_factor": 0.25}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", 3),
        ("rope.scaling.factor", "4"),
        ("rope.freq_base_swa", 7.0),
        ("rope.dimension_sections", (1, 2)),
        ("rope.freq_base", (1.0, 2.0)),
    ],
)
def test_what_is_not_understood_is_refused(key: str, value: object) -> None:
    file = gguf()
    file.metadata[f"llama.{key}"] = value
    with pytest.raises(CheckpointError, match=re.escape(key)):
        rope_from_gguf(file, CONFIG)


def test_layers_of_two_kinds() -> None:
    """Scaling is that of full attention, and layers with a window may have their own base."""
    local, full = ({"rope_type": "default", "rope_theta": theta} for theta in (10000.0, 1e6))
    config = SimpleNamespace(
        **{**vars(CONFIG), "rope_parameters": {"sliding_attention": local, "full_attention": dict(full, rope_theta=1)}}
    )
    file = gguf({"type": "linear", "factor": 8.0})
    file.metadata["llama.rope.freq_base"] = 1e6
    assert rope_from_gguf(file, config) == {
        "sliding_attention": local,
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    file = gguf()
    file.metadata["llama.rope.freq_base"] = 1e6
    file.metadata["llama.rope.freq_base_swa"] = 500.0
    assert rope_from_gguf(file, config) == {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": full,
    }
    file.metadata["llama.rope.dimension_count_swa"] = 64
    assert rope_from_gguf(file, config) is not None
    file.metadata["llama.rope.dimension_count_swa"] = 32
    with pytest.raises(CheckpointError, match="dimension_count_swa is 32, and SimpleNamespace rotates all 64"):
        rope_from_gguf(file, config)


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
