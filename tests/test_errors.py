"""Values in messages: short, whatever they are."""

from typing import Any

import pytest

from enginesmith.errors import shown


def test_small_values_are_shown_whole():
    assert [shown(value) for value in (5, 1.5, "a", None, [1, 2], {"a": 1})] == [
        "5",
        "1.5",
        "'a'",
        "None",
        "[1, 2]",
        "{'a': 1}",
    ]


@pytest.mark.parametrize("value", ["x" * 10**6, 10**4000, 10**5000, list(range(10**6)), b"x" * 10**6], ids=range(5))
def test_large_ones_are_cut(value: object):
    assert len(shown(value)) < 100


def test_values_that_contain_themselves():
    endless: Any = []
    endless.append(endless)
    doubled: Any = "x"
    for _ in range(60):
        doubled = [doubled, doubled]
    assert len(shown(endless)) < 300
    assert len(shown(doubled)) < 300
