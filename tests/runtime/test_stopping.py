"""Stop strings: found wherever the text is cut, and nothing of them shown too early."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.runtime.detokenizer import Detokenizer
from enginesmith.runtime.outputs import FinishReason
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.stopping import OutputText, StopStrings
from enginesmith.runtime.tokenizer import Tokenizer

TEXT = st.text("abc", max_size=25)


def feed(pieces: list[str], stops: list[str], include: bool) -> tuple[str, str | None]:
    matcher = StopStrings(stops, include)
    shown = ""
    for piece in pieces:
        shown += matcher.push(piece)
        if matcher.matched is not None:
            return shown, matcher.matched
    return shown + matcher.flush(), None


@settings(max_examples=400)
@given(
    text=TEXT,
    cuts=st.lists(st.integers(0, 25)),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
    include=st.booleans(),
)
def test_cuts_do_not_matter(text: str, cuts: list[int], stops: list[str], include: bool):
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[begin:end] for begin, end in pairwise(edges)]
    shown, matched = feed(pieces, stops, include)
    assert (shown, matched) == feed(list(text), stops, include)
    ends = [(text.find(stop) + len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert (shown, matched) == (text, None)
        return
    end = min(ends)[0]
    assert matched is not None
    assert text[:end].endswith(matched)
    assert shown == (text[:end] if include else text[: end - len(matched)])


@given(text=TEXT, stop=st.text("abc", min_size=1, max_size=5))
def test_no_more_is_held_back_than_may_stop(text: str, stop: str):
    matcher, shown = StopStrings([stop]), ""
    for index, character in enumerate(text):
        shown += matcher.push(character)
        if matcher.matched:
            return
        held = text[len(shown) : index + 1]
        assert stop.startswith(held)
        assert len(held) < len(stop)


@pytest.fixture(scope="module")
def tokenizer(byte_level_tokenizer: Path) -> Tokenizer:
    return Tokenizer(byte_level_tokenizer)


def run(tokenizer: Tokenizer, token_ids: list[int], params: SamplingParams, eos: tuple[int, ...] = (0,)) -> OutputText:
    output = OutputText(
        params,
        Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens),
        eos,
        params.max_tokens or len(token_ids),
    )
    output.shown = []  # type: ignore[attr-defined]
    for count, token in enumerate(token_ids, 1):
        output.shown.append(output.push(token, count))  # type: ignore[attr-defined]
        if output.finish_reason:
            break
    return output


def test_a_stop_string_over_token_borders(tokenizer: Tokenizer):
    token_ids = [*tokenizer.encode("ab STO"), *tokenizer.encode("P cd")]
    output = run(tokenizer, token_ids, SamplingParams(stop="STOP", max_tokens=99))
    assert "".join(output.shown) == "ab "  # type: ignore[attr-defined]
    assert (output.finish_reason, output.stop_reason) == (FinishReason.STOP, "STOP")


def test_held_text_is_shown_when_the_output_ends(tokenizer: Tokenizer):
    token_ids = tokenizer.encode("ab STO")
    output = run(tokenizer, token_ids, SamplingParams(stop="STOP", max_tokens=len(token_ids)))
    assert "".join(output.shown) == "ab STO"  # type: ignore[attr-defined]
    assert "STO" in output.shown[-1]  # type: ignore[attr-defined]
    assert output.finish_reason is FinishReason.LENGTH
    ended = run(tokenizer, [*token_ids, 0], SamplingParams(stop="STOP", max_tokens=99))
    assert "".join(ended.shown) == "ab STO"  # type: ignore[attr-defined]
    assert (ended.finish_reason, ended.stop_reason) == (FinishReason.STOP, None)


def test_an_unfinished_character_is_shown_when_the_output_ends(tokenizer: Tokenizer):
    token_ids = tokenizer.encode("日")[:1]
    output = run(tokenizer, token_ids, SamplingParams(max_tokens=1))
    assert output.shown == ["\ufffd"]  # type: ignore[attr-defined]


def test_min_tokens_puts_stopping_off(tokenizer: Tokenizer):
    token_ids = list(tokenizer.encode("xxxxxxxx"))
    count = len(token_ids)
    output = run(tokenizer, token_ids, SamplingParams(stop="x", min_tokens=count, max_tokens=99))
    assert "".join(output.shown) == "x" * 7  # type: ignore[attr-defined]
    assert output.stop_reason == "x"


def test_special_tokens_show_on_demand(tokenizer: Tokenizer):
    token_ids = [*tokenizer.encode("a"), 1, *tokenizer.encode("b"), 0]
    hidden = run(tokenizer, token_ids, SamplingParams(max_tokens=99))
    assert "".join(hidden.shown) == "ab"  # type: ignore[attr-defined]
    shown = run(tokenizer, token_ids, SamplingParams(max_tokens=99, skip_special_tokens=False))
    assert "".join(shown.shown) == "a<|start|>b"  # type: ignore[attr-defined]
    whole = SamplingParams(max_tokens=99, skip_special_tokens=False, include_stop_str_in_output=True)
    assert "".join(run(tokenizer, token_ids, whole).shown) == "a<|start|>b<|end|>"  # type: ignore[attr-defined]
