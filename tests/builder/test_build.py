"""Whole builds of tiny random checkpoints: the engine's logits are those of Transformers, however the tokens arrive."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from step_engine import StepEngine, logits_of
from tiny_models import FAMILIES, MIXTURES

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.reference import load_reference
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.checkpoint.checkpoint import open_checkpoint

pytestmark = pytest.mark.slow

CONFIG = BuildConfig(
    dtype="fp32", max_num_tokens=48, max_batch_size=48, kv_block_size=16, target=CpuOptions(isa="avx2"), check=False
)
FP32_BAR = 1e-4  # of the logits' spread: only the order of additions differs
LENGTH = 40  # longer than every sliding window of FAMILIES, and than a block of the cache

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module", params=[*FAMILIES, *MIXTURES])
def family(request: pytest.FixtureRequest, tiny_checkpoint: Checkpoint, tmp_path_factory) -> Iterator["Built"]:
    folder = tiny_checkpoint(request.param)
    output = tmp_path_factory.mktemp("engines") / request.param
    build(folder, output, CONFIG)
    built = Built(folder, StepEngine(output))
    yield built
    built.engine.close()


class Built:
    """An open engine, and what Transformers makes of the same checkpoint."""

    def __init__(self, checkpoint: Path, engine: StepEngine) -> None:
        self.engine = engine
        self.vocab = engine.engine.manifest.model.vocab_size
        self.model = load_reference(open_checkpoint(checkpoint))
        limit = engine.engine.manifest.limits.max_seq_len
        self.length = min(LENGTH, limit)
        self.tokens = [(5 + 37 * i + i * i) % self.vocab for i in range(self.length)]

    def expected(self, tokens: list[int]) -> np.ndarray:
        import torch

        with torch.inference_mode():
            return self.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float((np.abs(found - expected) / expected.std(axis=1, keepdims=True)).max())


def test_a_prompt_gives_the_logits_of_transformers(family: Built):
    assert distance(family.engine.run(family.tokens, family.length), family.expected(family.tokens)) < FP32_BAR


def test_chunks_and_single_tokens_change_no_bit(family: Built):
    n = family.length
    whole = family.engine.run(family.tokens, n)
    np.testing.assert_array_equal(family.engine.run(family.tokens, 1, 6, n - 10, 3), whole)
    np.testing.assert_array_equal(family.engine.run(family.tokens, 9, *[1] * (n - 9)), whole)


def test_company_changes_no_bit(family: Built):
    n = family.length
    decoding, chunked = family.engine.add(family.tokens), family.engine.add(family.tokens[::-1])
    whole = family.engine.add(family.tokens[3:11])
    family.engine.step((decoding, n - 2))
    family.engine.step((chunked, 5))
    family.engine.step((chunked, 4), (decoding, 1), (whole, 8))
    family.engine.step((decoding, 1), (chunked, n - 9))
    for sequence in (decoding, chunked, whole):
        alone = family.engine.run(sequence.tokens, len(sequence.tokens))
        np.testing.assert_array_equal(np.stack(sequence.logits), alone)


def test_greedy_text_is_that_of_transformers(family: Built):
    """Decoded token by token, each is the one that Transformers finds likeliest after all before it."""
    count = min(64, family.engine.engine.manifest.limits.max_seq_len - 6)
    prompt = family.tokens[:6]
    tokens = prompt + family.engine.greedy(prompt, count)
    likeliest = family.expected(tokens[:-1]).argmax(axis=1)
    if (after := family.engine.engine.manifest.model.long_rope_after) is not None:  # until then, the short factors
        likeliest[:after] = family.expected(tokens[:after]).argmax(axis=1)
    assert tokens[len(prompt) :] == likeliest[len(prompt) - 1 :].tolist()


def test_optimization_changes_no_bit(tiny_checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Tests run engines that are hardly optimized, users those that are."""
    config = CONFIG.model_copy(update={"weights": "int4", "group_size": 32, "kv_cache": "int8"})
    tokens = list(range(3, 3 + LENGTH))
    build(tiny_checkpoint("gemma2"), tmp_path / "quick", config)
    monkeypatch.delenv("ENGINESMITH_CXXFLAGS")
    build(tiny_checkpoint("gemma2"), tmp_path / "optimized", config)
    np.testing.assert_array_equal(logits_of(tmp_path / "quick", tokens), logits_of(tmp_path / "optimized", tokens))
