"""Traced networks of tiny models, each traced once: by whichever test comes first, through the cache of traces."""

from collections.abc import Callable
from typing import Any

import pytest
from tiny_models import FAMILIES

Traced = Callable[..., Any]


@pytest.fixture(scope="session")
def traced() -> Traced:
    """A function (family, max_seq_len=16) -> Network."""
    from enginesmith.builder.trace.trace import trace

    made: dict[tuple[str, int], Any] = {}

    def traced(family: str, max_seq_len: int = 16) -> Any:
        key = (family, max_seq_len)
        if key not in made:
            made[key] = trace(FAMILIES[family], max_seq_len=max_seq_len)
        return made[key]

    return traced
