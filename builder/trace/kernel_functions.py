"""Functions of models that Transformers lets faster kernels stand for: plugins stand for them while a model is traced.

Transformers' decorator `use_kernel_func_from_hub_with_fallback` names what a function computes, under whatever name a
model's module has it: that name is looked up among the plugins' FUNCTIONS (`plugins/*/trace.py`). Where a model loops
over tokens in a function of its own, or in a method, it is its name there, "function" or "Class.method", and only with
the parameters of the one that stands for it.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

from torch import nn

from ...plugins.discovery import traced_functions
from .modeling_modules import namespaces


@contextmanager
def opaque_functions(model: nn.Module) -> Iterator[None]:
    """While this holds, the functions in the model's own modules that plugins know are theirs."""
    known = traced_functions()
    found = [
        (namespace, name, value)
        for namespace in namespaces(model)
        for name, value in namespace.items()
        if isinstance(value, FunctionType) and kernel_name(value) in known
    ]
    methods = [
        (owner, name, value)
        for owner in dict.fromkeys(type(module) for module in model.modules())
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType) and _has_parameters_of(value, known.get(value.__qualname__))
    ]
    for namespace, name, value in found:
        namespace[name] = known[kernel_name(value)]
    for owner, name, value in methods:
        setattr(owner, name, known[value.__qualname__])
    try:
        yield
    finally:
        for namespace, name, value in found:
            namespace[name] = value
        for owner, name, value in methods:
            setattr(owner, name, value)


def _has_parameters_of(function: FunctionType, other: FunctionType | None) -> bool:
    return other is not None and [*inspect.signature(function).parameters] == [*inspect.signature(other).parameters]


def kernel_name(function: FunctionType) -> str:
    """The name of the kernel that may stand for a function, which the decorator holds on to; else its own name."""
    held = inspect.getclosurevars(function).nonlocals if "func_name" in function.__code__.co_freevars else {}
    return str(held.get("func_name", function.__name__))
