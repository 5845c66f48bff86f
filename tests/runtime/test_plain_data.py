"""Plain data: what Transformers makes of the same values, within bounds."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from enginesmith.errors import RequestError
from enginesmith.runtime.plain_data import plain


@dataclass
class Call:
    name: str
    arguments: Any


class Message(BaseModel):
    role: str
    content: list[int]


class Color(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


Pair = namedtuple("Pair", "a b")

VALUES = [
    {"a": [1, 2.5, None, True, ("x", ["y"])]},
    OrderedDict(b=1, a=2),
    {1: "one", None: 2, 2.5: 3, (1, "a"): 4},
    Call("get", {"x": Call("inner", (1, 2))}),
    Message(role="user", content=[1, 2]),
    [Color.RED, Number.ONE, Pair(1, [2])],
    [np.float32(0.5), np.int64(3), np.bool_(False), np.str_("s"), np.zeros(2)],
    [object(), print, {1, 2}, b"x", Call],
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_as_transformers(value: Any) -> None:
    theirs = pytest.importorskip("transformers.utils.chat_template_utils")._plain_template_data
    ours, expected = plain("x", value), theirs(value)
    assert ours == expected
    assert repr(ours) == repr(expected)  # the same types too


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    )
)
def test_json_stays_what_it_is(value: Any) -> None:
    assert plain("x", value) == value


def test_values_shared_again_and_again() -> None:
    value: Any = 0
    for _ in range(60):
        value = [value, value]
    with pytest.raises(RequestError, match="documents has more than 1000000 values"):
        plain("documents", value)


def test_keys_that_would_not_be_hashable() -> None:
    @dataclass(frozen=True)
    class Key:
        x: int

    assert plain("x", {Key(1): 2}) == {"<Key>": 2}
