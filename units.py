"""Quantities as people are shown them, and as they give them."""

import re
from typing import NewType

Bytes = NewType("Bytes", int)
"""A size that people may give as 2GB or 512MiB."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def shown_size(count: float) -> str:
    """1234567 bytes as "1.2 MB": decimal units, as bandwidths are given."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def read_size(text: str) -> Bytes | None:
    """2GB, 512MiB, or a plain number of bytes; None for what is no size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kmg]i?|)b?", text.lower())
    return None if match is None else Bytes(int(float(match[1]) * _UNITS[match[2]]))
