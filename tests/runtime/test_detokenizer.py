"""Incremental detokenization against decoding at once, over text, special tokens, and bytes that are no text."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers

from enginesmith.runtime.detokenizer import Detokenizer
from enginesmith.runtime.tokenizer import Tokenizer

PIECES = st.sampled_from([*"ab é,.\n\x00", "日", "本", "🙂", "👩‍👩‍👧", "e\u0301", "\ufffd", "Ü", "\u2028"])
TEXTS = st.one_of(st.lists(PIECES, max_size=30).map("".join), st.text(max_size=30))
RARELY = settings(max_examples=150)


@pytest.fixture(scope="module")
def byte_level(byte_level_tokenizer: Path) -> Tokenizer:
    return Tokenizer(byte_level_tokenizer)


@pytest.fixture(scope="module")
def byte_fallback(byte_fallback_tokenizer: Path) -> Tokenizer:
    return Tokenizer(byte_fallback_tokenizer)


def pieces(tokenizer: Tokenizer, token_ids: list[int], *, skip_special_tokens: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    return [*(detokenizer.push(token) for token in token_ids), detokenizer.flush()]


@RARELY
@given(text=TEXTS)
def test_byte_level_text_comes_back_whole(byte_level: Tokenizer, text: str):
    token_ids = byte_level.encode(text)
    shown = pieces(byte_level, token_ids)
    assert "".join(shown) == text
    if "\ufffd" not in text:
        assert shown[-1] == ""
        assert not any("\ufffd" in piece for piece in shown)


@RARELY
@given(token_ids=st.lists(st.integers(0, 299), max_size=40), skip=st.booleans())
def test_any_byte_level_tokens_decode_as_at_once(byte_level: Tokenizer, token_ids: list[int], skip: bool):
    shown = pieces(byte_level, token_ids, skip_special_tokens=skip)
    assert "".join(shown) == byte_level.decode(token_ids, skip_special_tokens=skip)


@RARELY
@given(text=TEXTS)
def test_byte_fallback_text_comes_back_whole(byte_fallback: Tokenizer, text: str):
    token_ids = byte_fallback.encode(text, add_special_tokens=False)
    shown = "".join(pieces(byte_fallback, token_ids))
    assert shown == byte_fallback.continuation(token_ids)
    assert shown.removeprefix(" ") == byte_fallback.decode(token_ids)


@RARELY
@given(token_ids=st.lists(st.integers(0, 270), max_size=60))
def test_invalid_bytes_are_replaced_and_the_valid_kept(byte_fallback: Tokenizer, token_ids: list[int]):
    """The library replaces a whole run of byte tokens that holds one bad byte; shown text cannot be taken back."""
    shown = "".join(pieces(byte_fallback, token_ids))
    whole = byte_fallback.continuation([token for token in token_ids if token not in byte_fallback.special_ids])
    if "\ufffd" not in whole:
        assert shown == whole
    kept = [character for character in whole if character != "\ufffd"]
    remaining = iter(shown)
    assert all(character in remaining for character in kept)


def test_a_character_over_several_tokens_appears_at_once(byte_level: Tokenizer):
    shown = pieces(byte_level, byte_level.encode("x😀y"))
    assert [piece for piece in shown if piece] == ["x", "😀", "y"]


def test_a_word_keeps_its_space(byte_fallback: Tokenizer):
    space_the = byte_fallback._rust.token_to_id("▁the")
    assert space_the is not None
    assert byte_fallback.decode([space_the]) == "the"
    assert "".join(pieces(byte_fallback, [space_the])) == " the"


def test_broken_bytes_do_not_hold_text_back_for_ever(byte_level: Tokenizer, byte_fallback: Tokenizer):
    cut = byte_level.encode("日")[:1]  # the first byte of three, again and again
    assert len(byte_level.encode("日")) > 1
    shown = pieces(byte_level, cut * 50)
    assert "".join(shown) == "\ufffd" * 50
    assert len("".join(shown[:20])) >= 19
    byte = byte_fallback.encode("\x80", add_special_tokens=False)[-1:]
    shown = pieces(byte_fallback, byte * 50)
    assert "".join(shown) == "\ufffd" * 50
    assert len("".join(shown[:20])) >= 16


def test_word_pieces_are_joined(tmp_path: Path):
    vocabulary = {"[UNK]": 0, "a": 1, "##b": 2, "dog": 3, "##gy": 4, ".": 5}
    rust = RustTokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.decoder = decoders.WordPiece()
    rust.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert "".join(pieces(tokenizer, [1, 2, 3, 4, 5])) == " ab doggy."
