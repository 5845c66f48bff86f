"""What a plugin defines: a fused operation the network may hold, its schema, what passes ask of it, a NumPy reference.

A plugin's folder has an `op.py` with one or more operations, as `OPERATIONS`, a `reference.py`, and a folder for each
target that lowers them. discovery.py finds them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ..errors import UnsupportedModelError

DOMAIN = "enginesmith"
VERSION = 1

Sizes = tuple[int | str, ...]
"""A shape. A size is known at build time, or has the name of one known at run time: "T" (tokens), "R" (rows)."""


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
class Traits:
    """What passes, lowering and quantization ask of any operation, instead of knowing its name.

    `row_inputs`: inputs with the rows of the output, where row i of the output depends on row i of those alone,
    whatever the leading dimensions; None where rows mix. `elementwise`: the same of single elements, of inputs that
    broadcast.
    `is_stateful`: two equal nodes are not the same (attention writes its cache, a recurrence its state).
    `is_matmul`: it multiplies activations by activations or weights, so that what comes before it is no part of the
    head.

    Which parameters can take over a division of the output by a factor for each channel, its last dimension: those at
    `scale_inputs` together, vectors [channels] or matrices [channels, K]; or what makes the input at `linear_input`,
    whose channels are the output's; `is_homogeneous`: that is the first, element by element.
    """

    row_inputs: tuple[int, ...] | None = None
    elementwise: bool = False
    is_stateful: bool = False
    is_matmul: bool = False
    scale_inputs: tuple[int, ...] = ()
    linear_input: int | None = None
    is_homogeneous: bool = False


@dataclass(frozen=True)
class Operation:
    """A fused operation of the domain "enginesmith".

    `attributes` is a frozen dataclass of int, float and str (or StrEnum) fields. `infer(shapes, attributes)` gives the
    outputs' shapes from the inputs' (None for an absent one) and raises ValueError where they do not fit.
    `reference(*inputs, attributes)` computes the operation in NumPy (None for an absent input); an operation whose
    state lives in the runtime documents its own reference's signature. `is_traced`: the tracer emits it, while others
    are made by passes. `state(shapes, attributes)`: of a recurrence, the shape of what it keeps of each sequence, in
    float32, beginning with zeros; such an operation `is_stateful`.
    """

    name: str
    doc: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    attributes: type
    infer: Callable[[Sequence[Sizes | None], Any], tuple[Sizes, ...]]
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    traits: Traits = Traits()
    is_traced: bool = False
    state: Callable[[Sequence[Sizes | None], Any], tuple[int, ...]] | None = None
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


def _typed(kind: Any, value: object) -> object:
    """A StrEnum field from its string (ONNX has bytes or str); other values as they are."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value.decode() if isinstance(value, bytes) else value)
    return value.decode() if isinstance(value, bytes) else value
