"""Functions of models that Transformers lets faster kernels stand for: plugins stand for them while a model is traced.

Transformers' decorator `use_kernel_func_from_hub_with_fallback` names what a function computes, under whatever name a
model's module has it: that name is looked up among the plugins' FUNCTIONS (`plugins/*/trace.py`).
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
    for namespace, name, value in found:
        namespace[name] = known[kernel_name(value)]
    try:
        yield
    finally:
        for namespace, name, value in found:
            namespace[name] = value


def kernel_name(function: FunctionType) -> str:
    """The name of the kernel that may stand for a function, which the decorator holds on to; else its own name."""
    held = inspect.getclosurevars(function).nonlocals if "func_name" in function.__code__.co_freevars else {}
    return str(held.get("func_name", function.__name__))
