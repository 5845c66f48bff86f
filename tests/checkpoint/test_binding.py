import ml_dtypes
import numpy as np
import pytest

from enginesmith.checkpoint.binding import bind
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.errors import CheckpointError

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TIED = {HEAD: EMBED}


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_exact_names(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({EMBED: weight(8, 4), HEAD: weight(8, 4)}))
    assert bind(checkpoint, {EMBED: (8, 4), HEAD: [8, 4]}) == {EMBED: EMBED, HEAD: HEAD}


@pytest.mark.parametrize("prefix", ["transformer.", "transformer"])
def test_prefix_taken_away(make_checkpoint, prefix: str) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"wte.weight": weight(8, 4), "h.0.ln_1.bias": weight(4)}))
    bound = bind(checkpoint, {"transformer.wte.weight": (8, 4), "transformer.h.0.ln_1.bias": (4,)}, base_prefix=prefix)
    assert bound == {"transformer.wte.weight": "wte.weight", "transformer.h.0.ln_1.bias": "h.0.ln_1.bias"}


def test_prefix_added(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"model.norm.weight": weight(4)}))
    assert bind(checkpoint, {"norm.weight": (4,)}, base_prefix="model.") == {"norm.weight": "model.norm.weight"}


def test_prefix_is_not_taken_from_the_middle(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"a.weight": weight(4)}))
    with pytest.raises(CheckpointError, match=r"missing \(1\): a\.model\.weight"):
        bind(checkpoint, {"a.model.weight": (4,)}, base_prefix="model.")


@pytest.mark.parametrize("stored", [[EMBED], [HEAD], [EMBED, HEAD]])
def test_tied_embeddings(make_checkpoint, stored: list[str]) -> None:
    checkpoint = open_checkpoint(make_checkpoint({name: weight(8, 4) for name in stored}))
    assert bind(checkpoint, {EMBED: (8, 4)}, TIED) == {EMBED: stored[0]}


def test_tied_embeddings_that_differ(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({EMBED: weight(8, 4), HEAD: weight(8, 4, seed=1)}))
    with pytest.raises(CheckpointError, match=r"differs.*lm_head\.weight.*tie_word_embeddings"):
        bind(checkpoint, {EMBED: (8, 4)}, TIED)


def test_untied_head_must_be_there(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({EMBED: weight(8, 4)}))
    with pytest.raises(CheckpointError, match=r"missing \(1\): lm_head\.weight"):
        bind(checkpoint, {EMBED: (8, 4), HEAD: (8, 4)})


def test_every_offender_is_listed_at_once(make_checkpoint) -> None:
    tensors = {
        "good": weight(2),
        "flat": weight(8),
        "turned": weight(3, 2),
        "integer": np.zeros(2, np.int8),
        "stray": weight(1),
        "layers.7.stray": weight(1),
    }
    parameters = {"good": (2,), "flat": (2, 4), "turned": (2, 3), "integer": (2,), "lost": (5,)}
    parameters |= {f"layers.{i}.up.weight": (1,) for i in (0, 1, 2, 5)}
    with pytest.raises(CheckpointError) as caught:
        bind(open_checkpoint(make_checkpoint(tensors)), parameters)
    message = str(caught.value)
    assert "missing (5): lost, layers.{0-2,5}.up.weight" in message
    assert "unexpected (2): stray, layers.7.stray" in message
    assert "wrong shape: flat: expected [2, 4], found [8]" in message
    assert "wrong shape: turned: expected [2, 3], found [3, 2]" in message
    assert "wrong dtype: integer: expected a floating-point type, found int8" in message
    assert "good" not in message


HARMLESS = [
    "model.layers.0.self_attn.rotary_emb.inv_freq",
    "h.0.attn.bias",
    "h.0.attn.masked_bias",
    "gpt_neox.layers.3.attention.bias",
    "gpt_neox.layers.3.attention.masked_bias",
    "embeddings.position_ids",
]


def test_computed_buffers_may_be_stored(make_checkpoint) -> None:
    tensors = {name: weight(1) for name in HARMLESS} | {"a": weight(1).astype(ml_dtypes.bfloat16)}
    assert bind(open_checkpoint(make_checkpoint(tensors)), {"a": (1,)}) == {"a": "a"}


@pytest.mark.parametrize("name", ["h.0.attn.c_attn.bias", "layers.0.self_attn.bias", "rotary_emb.weight", "xattn.bias"])
def test_names_that_only_resemble_buffers(make_checkpoint, name: str) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"a": weight(1), name: weight(1)}))
    with pytest.raises(CheckpointError, match="unexpected"):
        bind(checkpoint, {"a": (1,)})


def test_a_parameter_named_like_a_buffer_is_bound(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"h.0.attn.bias": weight(3)}))
    assert bind(checkpoint, {"h.0.attn.bias": (3,)}) == {"h.0.attn.bias": "h.0.attn.bias"}


def test_ignorable_patterns_are_searched(make_checkpoint) -> None:
    checkpoint = open_checkpoint(make_checkpoint({"a": weight(1), "mtp.layers.0.x": weight(1)}))
    assert bind(checkpoint, {"a": (1,)}, ignorable_unexpected=[r"^mtp\."]) == {"a": "a"}
