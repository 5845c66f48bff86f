"""Sizes of tensors: an integer, or an integer times T (tokens of a step) or R (rows of logits)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ...errors import UnsupportedModelError


class Symbol(StrEnum):
    """What a size is counted in, as a network names it."""

    ONE = "1"
    TOKENS = "T"
    ROWS = "R"


@dataclass(frozen=True)
class Dim:
    """`count` times `symbol`."""

    count: int
    symbol: Symbol = Symbol.ONE

    @property
    def is_static(self) -> bool:
        return self.symbol is Symbol.ONE

    @property
    def is_one(self) -> bool:
        return self.is_static and self.count == 1

    def __str__(self) -> str:
        if self.is_static:
            return str(self.count)
        return self.symbol.value if self.count == 1 else f"{self.count}*{self.symbol}"


Shape = tuple[Dim, ...]
ONE = Dim(1)
_TERM = re.compile(r"(?:(?P<left>\d+)\*)?(?P<symbol>[TR])(?:\*(?P<right>\d+))?")


def parse_dim(text: int | str) -> Dim:
    """A Dim from what a network says: 12, "T", "R", "9*T", "T*9". Raises UnsupportedModelError for anything else."""
    if isinstance(text, int):
        return Dim(text)
    match = _TERM.fullmatch(text.replace(" ", "").strip("()"))
    if match is None:
        raise UnsupportedModelError(
            f"a tensor has the size {text!r}; only integers and multiples of T and R can be lowered"
        )
    return Dim(int(match["left"] or 1) * int(match["right"] or 1), Symbol(match["symbol"]))


def symbol_of(shape: Iterable[Dim]) -> Symbol | None:
    """The one symbol a shape contains, ONE when it is static, None when it has more than one symbolic dimension."""
    symbols = [dim.symbol for dim in shape if not dim.is_static]
    if len(symbols) > 1:
        return None
    return symbols[0] if symbols else Symbol.ONE


def static_size(shape: Iterable[Dim]) -> int:
    """Elements per unit of the symbol: the product of all counts."""
    size = 1
    for dim in shape:
        size *= dim.count
    return size
