"""The Python modules of Transformers in which a model is written, changed while the model is traced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def namespaces(model: nn.Module) -> list[dict[str, Any]]:
    """The globals of the modules that define the classes of `model` and of what it holds, in order of first use."""
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    return [vars(sys.modules[name]) for name in names if name.startswith("transformers.")]


@contextmanager
def sorted_sets(model: nn.Module) -> Iterator[None]:
    """While this holds, `set(...)` in the model's own modules gives sets that are iterated in sorted order.

    Models with several kinds of layers compute rotary angles "for layer_type in set(config.layer_types)". The order of
    a set of strings differs between processes, and nodes would be recorded in that order.
    """
    changed = [namespace for namespace in namespaces(model) if "set" not in namespace]
    for namespace in changed:
        namespace["set"] = _SortedSet
    try:
        yield
    finally:
        for namespace in changed:
            del namespace["set"]


class _SortedSet(set[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=str))
