"""Quantities as people are shown them."""


def shown_size(count: float) -> str:
    """1234567 bytes as "1.2 MB": decimal units, as bandwidths are given."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"
