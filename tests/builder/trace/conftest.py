"""Traced networks of tiny models, each traced once."""

from collections.abc import Callable
from typing import Any

import pytest
from tiny_models import FAMILIES

Traced = Callable[..., Any]


@pytest.fixture(scope="session")
def traced() -> Traced:
    """A function (family, max_seq_len=16) -> Network."""
    from enginesmith.builder.trace.build import build_network
    from enginesmith.progress import NoProgress

    made: dict[tuple[str, int], Any] = {}

    def trace(family: str, max_seq_len: int = 16) -> Any:
        key = (family, max_seq_len)
        if key not in made:
            made[key] = build_network(FAMILIES[family], max_seq_len, NoProgress())
        return made[key]

    return trace
