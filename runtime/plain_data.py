"""What a caller passes to a chat template, as plain data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import RequestError

MAX_DEPTH = 100
MAX_VALUES = 1_000_000


def plain(name: str, value: Any) -> Any:
    """JSON-like data, dataclasses, pydantic models and NumPy scalars rebuilt of exact built-in types.

    Anything else becomes the name of its type. Raises RequestError, which names the argument, for what contains itself,
    is too deep or too large.
    """
    return _Copy(name).of(value, 0)


class _Copy:
    def __init__(self, name: str) -> None:
        self._name = name
        self._left = MAX_VALUES

    def of(self, value: Any, depth: int) -> Any:
        if value is None or type(value) in (str, int, float, bool):
            return value
        if isinstance(value, Mapping):
            self._enter(depth, len(value))
            return {self._key(key, depth): self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            self._enter(depth, len(value))
            items = [self.of(item, depth + 1) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, (int, float)):
            return int.__int__(value) if isinstance(value, int) else float.__float__(value)
        if isinstance(value, np.generic):
            self._enter(depth, 1)
            return self.of(value.item(), depth + 1)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.of({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, depth)
        if callable(dump := getattr(value, "model_dump", None)):
            self._enter(depth, 1)
            return self.of(dump(), depth + 1)
        return f"<{type(value).__name__}>"

    def _key(self, key: Any, depth: int) -> Any:
        """Keys stay hashable."""
        copy = self.of(key, depth + 1)
        try:
            hash(copy)
        except TypeError:
            return f"<{type(key).__name__}>"
        return copy

    def _enter(self, depth: int, values: int) -> None:
        self._left -= values
        if depth >= MAX_DEPTH:
            raise RequestError(f"{self._name} contains itself, or is nested more than {MAX_DEPTH} deep")
        if self._left < 0:
            raise RequestError(f"{self._name} has more than {MAX_VALUES} values")
