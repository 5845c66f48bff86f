"""A head that config.json ties to the embedding, but that is stored with values of its own, as in Transformers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from evaluate_network import evaluate
from untied import EMBEDDING, tensors_of, untied

from enginesmith.builder.bind import bind_network
from enginesmith.builder.reference import forward, load_reference
from enginesmith.builder.traced_checkpoint import trace_checkpoint
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.progress import NoProgress

TOKENS = [9, 4, 77, 31, 5]


def test_a_head_that_differs_counts(tiny_checkpoint: Callable[[str], Path], tmp_path: Path):
    source = tiny_checkpoint("qwen2")
    embedding = tensors_of(source)[EMBEDDING]
    folder = untied(source, tmp_path / "checkpoint", embedding=embedding, head=embedding[::-1].copy())
    tied = json.loads((source / "config.json").read_text())
    assert tied["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(tied))

    checkpoint = open_checkpoint(folder)
    network, (note,) = trace_checkpoint(checkpoint, 16, NoProgress())
    weights = bind_network(network, checkpoint, None)
    values = {name: np.asarray(weights.reference(name)) for name in weights.names}
    found, expected = evaluate(network, values, [TOKENS]), forward(load_reference(checkpoint), TOKENS)
    assert "lm_head.weight and model.embed_tokens.weight" in note
    assert np.abs(found - expected).max() < 1e-4 * np.ptp(expected)


def test_one_that_is_the_same_is_tied(tiny_checkpoint: Callable[[str], Path], tmp_path: Path):
    source = tiny_checkpoint("qwen2")
    embedding = tensors_of(source)[EMBEDDING]
    folder = untied(source, tmp_path / "checkpoint", embedding=embedding, head=embedding)
    (folder / "config.json").write_text((source / "config.json").read_text())
    network, notes = trace_checkpoint(open_checkpoint(folder), 16, NoProgress())
    assert list(network.tied) == ["lm_head.weight"]
    assert not notes
