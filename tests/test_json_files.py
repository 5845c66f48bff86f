"""The one reader of JSON files: equal to Python's on what is sound, and a short error for what is not."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.errors import CheckpointError
from enginesmith.json_files import MAX_DEPTH, MAX_VALUES, parse, read_bytes, read_object

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_SCALAR = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | _TEXT
_VALUE = st.recursive(_SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4))


@settings(max_examples=200, deadline=None)
@given(_VALUE, st.booleans())
def test_sound_json_reads_as_python_reads_it(value: object, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64) | st.text('[]{}:,"\\ud8c0-1e9NaInfity', max_size=64).map(str.encode))
def test_any_bytes_give_a_value_or_a_short_value_error(data: bytes) -> None:
    reason = ""
    try:
        json.dumps(parse(data), ensure_ascii=False).encode()
    except ValueError as error:
        reason = str(error)
    assert len(reason) < 200


def test_integers_past_64_bits_become_floats_as_serde_reads_them() -> None:
    assert parse(b"[9223372036854775807, 9223372036854775808]") == [2**63 - 1, 2.0**63]
    (large,) = parse(b"[1000000000000000019884624838656]")  # model_max_length of many a tokenizer_config.json
    assert large == 1e30
    assert isinstance(large, float)
    assert parse(b"[" + b"9" * 5000 + b"]") == [math.inf]


def test_python_s_infinities_are_read() -> None:
    low, high = parse(b"[-Infinity, Infinity]")
    assert (low, high) == (-math.inf, math.inf)
    assert math.isnan(parse(b"NaN"))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 200_000])
def test_depth_is_bounded(opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH}"):
        parse((opening * depth + "0" + closing * depth).encode())


def test_the_deepest_allowed_is_read() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


def test_the_number_of_values_is_bounded_before_any_is_made() -> None:
    with pytest.raises(ValueError, match=f"the limit is {MAX_VALUES}"):
        parse(b"[" + b"0," * MAX_VALUES + b"0]")


@pytest.mark.parametrize("data", [rb'["\ud800"]', rb'{"\uDfff": 1}', b'["\xed\xa0\x80"]', b'["\xff"]'])
def test_text_that_cannot_be_printed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"surrogate|UTF-8"):
        parse(data)


def test_a_whole_pair_is_read() -> None:
    assert parse(rb'["\ud83d\ude00"]') == ["\N{GRINNING FACE}"]


def test_duplicate_keys_are_refused_on_demand() -> None:
    assert parse(b'{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(ValueError, match="'a' appears twice"):
        parse(b'{"a": 1, "a": 2}', unique=True)


def test_files_are_named_with_what_ails_them(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(CheckpointError, match="no such file"):
        read_object(path, CheckpointError)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match=r"x\.json: expected a JSON object, found list; make it again"):
        read_object(path, CheckpointError, "make it again")
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"x\.json: not valid JSON: .*line 1"):
        read_object(path, CheckpointError)
    path.write_text('{"a": 1}')
    with pytest.raises(CheckpointError, match="8 B long; the limit is 4 B"):
        read_bytes(path, CheckpointError, max_bytes=4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_object(tmp_path / "pipe", CheckpointError)
    with pytest.raises(CheckpointError, match="Not a directory"):
        read_object(path / "y.json", CheckpointError)


def test_permissions_are_blamed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(CheckpointError, match="no permission to read it"):
        read_object(path, CheckpointError)
