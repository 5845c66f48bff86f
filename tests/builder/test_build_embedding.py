"""Builds whose lookups read the head: the logits of a table of the same values, in an engine without that table."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from quantized_models import Stored, quantized_checkpoint, random_grid, store_gptq
from step_engine import logits_of
from untied import EMBEDDING, tensors_of, untied

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.errors import BuildError
from enginesmith.quantization import rtn
from enginesmith.quantization.scheme import WeightScheme, WeightType

pytestmark = pytest.mark.slow

CONFIG = BuildConfig(
    dtype="fp32",
    head="int8",
    embedding="int8",
    max_num_tokens=48,
    max_batch_size=48,
    kv_block_size=16,
    target=CpuOptions(isa="avx2"),
)
PLAIN = CONFIG.model_copy(update={"embedding": "plain"})
VOCABULARY, HIDDEN = 128, 64
TABLE = VOCABULARY * HIDDEN * 4
TOKENS = [(5 + 37 * i + i * i) % VOCABULARY for i in range(40)]

Checkpoint = Callable[[str], Path]


def with_table(source: Path, folder: Path) -> Path:
    """The model with a head of its own, and the embedding that an int8 head of those values stands for."""
    table, scheme = tensors_of(source)[EMBEDDING], WeightScheme(WeightType.INT8, 64)
    rounded = rtn.quantize(table, scheme).dequantize(scheme.group_size)
    return untied(source, folder, embedding=rounded, head=table)


@pytest.mark.parametrize("family", ["llama-linear", "gemma3_text"])  # Gemma multiplies rows by a constant
def test_logits_are_those_of_a_table_of_the_heads_values(
    tiny_checkpoint: Checkpoint, tmp_path: Path, family: str
) -> None:
    tied = tiny_checkpoint(family)
    shared = build(tied, tmp_path / "shared", CONFIG)
    plain = build(with_table(tied, tmp_path / "checkpoint"), tmp_path / "plain", PLAIN)
    np.testing.assert_array_equal(logits_of(tmp_path / "shared", TOKENS), logits_of(tmp_path / "plain", TOKENS))
    assert shared.check is not None
    sizes = [(tmp_path / name / "weights.bin").stat().st_size for name in ("shared", "plain")]
    assert sizes == [shared.weights_bytes, plain.weights_bytes]
    assert sizes[1] - sizes[0] == TABLE
    for name, expected in (("shared", 0), ("plain", TABLE)):
        assert json.loads((tmp_path / name / "report.json").read_text())["table_bytes"] == expected


def test_a_quantized_checkpoint_with_a_plain_tied_embedding(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its head is int8 without being asked."""

    def gptq(rng: np.random.Generator, name: str, n: int, k: int) -> Stored:
        grid = random_grid(rng, n, k, 4, 32, symmetric=True)
        return Stored(store_gptq(grid, 4, 1), grid.values())

    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
    folder = quantized_checkpoint(tiny_checkpoint("llama-linear"), tmp_path / "checkpoint", config, gptq)
    report = build(folder, tmp_path / "engine", CONFIG.model_copy(update={"head": "auto"}))
    layers = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert layers == {"int4-g32": 8, "int8-g64": 1}
    assert report.table_bytes == 0
    assert report.check is not None


def test_tables_that_are_not_tied_stay(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    """GPT-2 has one of positions, too."""
    report = build(tiny_checkpoint("gpt2"), tmp_path / "engine", CONFIG)
    assert report.calls["Embedding"] == 2
    assert report.table_bytes == 128 * HIDDEN * 4


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {}, r"must be tied, but .* a weight each \(model\.embed_tokens, lm_head\); leave --embedding out"),
        ("llama-linear", {"head": "plain"}, rf"the head, {EMBEDDING}, is stored as fp32; build with --head int8, or"),
        ("llama-linear", {"head": "auto", "dtype": "bf16"}, "is stored as bf16; build with --head int8, or leave"),
    ],
)
def test_without_an_int8_head_to_read_it_is_refused(
    tiny_checkpoint: Checkpoint, tmp_path: Path, family: str, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(BuildError, match=f"--embedding int8 reads rows out of .*{message}"):
        build(tiny_checkpoint(family), tmp_path / "engine", CONFIG.model_copy(update=changes))
    assert not (tmp_path / "engine").exists()
