"""What a plugin is: a fused operation the network may hold, with a schema, a shape rule and a NumPy reference.

Each folder beside this file that has an `op.py` defines one or more operations there, as `OPERATIONS`. Its
`reference.py` computes them in NumPy and `cpu/*.h` are the C++ templates that the CPU target instantiates.
"""

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import UnsupportedModelError

DOMAIN = "enginesmith"
VERSION = 1

Dim = int | str
"""A size known at build time, or the name of one known at run time: "T" (tokens), "R" (rows of logits)."""
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Input:
    """One input of an operation. An optional one may be absent: its name in the node is then empty."""

    name: str
    shape: str
    optional: bool = False


@dataclass(frozen=True)
class Output:
    """One output of an operation."""

    name: str
    shape: str


@dataclass(frozen=True)
class Operation:
    """A fused operation of the domain "enginesmith".

    `attributes` is a frozen dataclass of int, float and str (or StrEnum) fields. `infer(shapes, attributes)` gives the
    outputs' shapes from the inputs' (None for an absent one) and raises ValueError where they do not fit.
    `reference(*inputs, attributes)` computes the operation in NumPy (None for an absent input); an operation whose
    state lives in the runtime documents its own reference's signature.
    """

    name: str
    doc: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    attributes: type
    infer: Callable[[Sequence[Shape | None], Any], tuple[Shape, ...]]
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    domain: str = DOMAIN

    def parse(self, attributes: Mapping[str, object]) -> Any:
        """The attributes dataclass from a node's attributes; names the unknown or missing one otherwise.

        Raises UnsupportedModelError.
        """
        fields = {field.name: field for field in dataclasses.fields(self.attributes)}
        required = {n for n, f in fields.items() if f.default is dataclasses.MISSING}
        unknown, missing = sorted(attributes.keys() - fields.keys()), sorted(required - attributes.keys())
        if unknown or missing:
            raise UnsupportedModelError(
                f"{self.domain}::{self.name}: unknown attributes {unknown}, missing attributes {missing}; "
                f"it has {sorted(fields)}"
            )
        try:
            return self.attributes(**{name: _typed(fields[name].type, value) for name, value in attributes.items()})
        except ValueError as error:
            raise UnsupportedModelError(f"{self.domain}::{self.name}: {error}") from error

    def unparse(self, attributes: Any) -> dict[str, int | float | str]:
        """A node's attributes, every field written out, in the order of the dataclass."""
        values = {field.name: getattr(attributes, field.name) for field in dataclasses.fields(attributes)}
        return {name: value.value if isinstance(value, StrEnum) else value for name, value in values.items()}


def _typed(kind: Any, value: object) -> object:
    """A StrEnum field from its string (ONNX has bytes or str); other values as they are."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value.decode() if isinstance(value, bytes) else value)
    return value.decode() if isinstance(value, bytes) else value


@cache
def operations() -> Mapping[str, Operation]:
    """Every operation of every plugin folder, by name."""
    package = __package__ or ""
    folders = import_module(package).__path__
    found: dict[str, Operation] = {}
    for folder in sorted(module.name for module in pkgutil.iter_modules(folders) if module.ispkg):
        if find_spec(f"{package}.{folder}.op"):
            found |= {op.name: op for op in import_module(f"{package}.{folder}.op").OPERATIONS}
    return MappingProxyType(found)


def operation(name: str, domain: str = DOMAIN) -> Operation:
    """The operation called `name`. Raises UnsupportedModelError where there is none."""
    if domain == DOMAIN and name in operations():
        return operations()[name]
    raise UnsupportedModelError(
        f"no plugin provides {domain or 'ai.onnx'}::{name}; the plugins provide {sorted(operations())}"
    )
