"""Follow what a graph computes from one value and constant numbers alone, by evaluating it on sample data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .graph import constant, same_type, scalar

Accepts = Callable[[ir.Node], bool]
Evaluate = Callable[[ir.Node, list[np.ndarray | None]], np.ndarray]

_MAX_NODES = 24


@dataclass(frozen=True)
class Piece:
    """A value computed from a start and numbers alone, through nodes whose results nothing outside the piece reads."""

    result: ir.Value
    samples: np.ndarray  # the result, for the samples given
    numbers: list[float]  # that went into it
    is_exclusive: bool  # nothing else reads the start


def pieces(start: ir.Value, samples: np.ndarray, accepts: Accepts, evaluate: Evaluate) -> Iterator[Piece]:
    """Every replaceable piece of the graph after `start` whose result has the type of `start`, nearest first.

    Only nodes are followed that `accepts` lets pass and that read nothing but values known already and numbers.
    """
    known = {start: samples}
    followed: set[ir.Node] = set()
    while len(followed) < _MAX_NODES and (node := _next_node(known, followed, accepts)) is not None:
        inputs = [known[v] if v is not None and v in known else _number(v) for v in node.inputs]
        with np.errstate(all="ignore"):
            known[node.outputs[0]] = evaluate(node, inputs)
        followed.add(node)
        if same_type(start, node.outputs[0]) and (piece := _piece(start, node, known)) is not None:
            yield piece


def _next_node(known: dict[ir.Value, np.ndarray], followed: set[ir.Node], accepts: Accepts) -> ir.Node | None:
    for value in known:
        for node in value.consumers():
            reads = all(v is None or v in known or scalar(v) is not None for v in node.inputs)
            if node not in followed and reads and accepts(node):
                return node
    return None


def _piece(start: ir.Value, last: ir.Node, known: dict[ir.Value, np.ndarray]) -> Piece | None:
    """The piece that ends with `last`, or None if something outside it reads one of its inner values."""
    inside: set[ir.Node] = set()
    numbers: list[float] = []
    pending = [last]
    while pending:
        node = pending.pop()
        if node in inside:
            continue
        inside.add(node)
        for value in node.inputs:
            producer = None if value is None else value.producer()
            if value in known and value is not start and producer is not None:
                pending.append(producer)
            elif (number := scalar(value)) is not None:
                numbers.append(number)
    inner = (node.outputs[0] for node in inside if node is not last)
    if any(_is_read_outside(value, inside) for value in inner):
        return None
    return Piece(last.outputs[0], known[last.outputs[0]], numbers, not _is_read_outside(start, inside))


def _is_read_outside(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in inside for use in value.uses())


def _number(value: ir.Value | None) -> np.ndarray | None:
    array = constant(value)
    return None if array is None else array.astype(np.float64).reshape(())
