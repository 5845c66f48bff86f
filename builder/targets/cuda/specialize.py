"""What a launch compiles to: a Triton function with the types of its arguments and its constants."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ....errors import BuildError
from ....runtime.executors.cuda.launches import Argument, Count, Home
from ...lowering import views
from ...lowering.program import PlainWeight
from ...lowering.views import DType, View
from .source.call import BlockTable, CachePart, Context, Launch, StepInput, Typed, WeightPart

_TYPES = {DType.F32: "*fp32", DType.BF16: "*bf16", DType.I32: "*i32", DType.BOOL: "*u8"}
_ALIGNED = 16


@dataclass(frozen=True)
class Specialization:
    """A function, the types of its parameters ("constexpr": a constant), and how it is launched.

    `aligned`: the numbers of parameters that point to multiples of 16 bytes.
    """

    function: Any = field(repr=False)
    signature: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[int, ...]
    num_warps: int
    num_stages: int
    sm: int

    @property
    def source(self) -> str:
        return f"{self.function.fn.__module__}:{self.function.fn.__name__}"

    def facts(self) -> dict[str, Any]:
        """All but the function, as JSON has it."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "function"}

    def key(self, version: str) -> str:
        """A digest of all that the cubin depends on; `version`: of the compiler."""
        text = json.dumps([version, self.function.cache_key, self.facts()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def specialize(launch: Launch, context: Context, groups: Mapping[int, int]) -> tuple[Specialization, list[Argument]]:
    """A launch's kernel, and its arguments in the order of the kernel's parameters, constants left out.

    `groups`: cache layer -> cache group. Raises BuildError where the launch does not give what the kernel takes.
    """
    names = list(launch.kernel.arg_names)
    found = {*launch.arguments, *launch.constants}
    if found != set(names) or len(found) != len(launch.arguments) + len(launch.constants):
        raise BuildError(f"the kernel {launch.kernel.fn.__name__} takes {names}, but is launched with {sorted(found)}")
    signature: dict[str, str] = {}
    constants: dict[str, Any] = dict(launch.constants)
    arguments, aligned = [], []
    for number, name in enumerate(names):
        value = launch.arguments.get(name)
        if value is None:
            signature[name], constants[name] = "constexpr", launch.constants.get(name)
            continue
        argument, signature[name] = _argument(value, context, groups)
        arguments.append(argument)
        if argument.home is not Home.COUNT and argument.offset % _ALIGNED == 0:
            aligned.append(number)
    sizes = launch.num_warps, launch.num_stages, context.sm
    return Specialization(launch.kernel, signature, constants, tuple(aligned), *sizes), arguments


def _argument(value: Any, context: Context, groups: Mapping[int, int]) -> tuple[Argument, str]:
    """Where an argument lies, and its type as Triton names it."""
    match value:
        case Count():
            return Argument(Home.COUNT, name=value.value), "i32"
        case Typed():
            return argument_of(value.view), value.type
        case View():
            return argument_of(value), _TYPES[value.dtype]
        case PlainWeight():
            return Argument(Home.WEIGHTS, value.buffer.offset), "*bf16" if value.bf16 else _TYPES[value.buffer.dtype]
        case WeightPart():
            return Argument(Home.WEIGHTS, value.weight.offset + value.offset), value.type
        case CachePart():
            offset = context.layer_offsets[value.layer.index] + value.offset
            return Argument(Home.CACHE, offset, group=groups[value.layer.index]), value.type
        case BlockTable():
            return Argument(Home.INPUT, name="block_table", group=groups[value.layer.index]), "*i32"
        case StepInput():
            return Argument(Home.INPUT, name=value.name), "*i32"
    raise TypeError(f"{value!r} is no argument of a kernel")


def argument_of(view: View) -> Argument:
    """A pointer to the first element of a view."""
    offset = view.offset * view.dtype.nbytes
    if view.buffer.home is views.Home.INPUT:
        return Argument(Home.INPUT, offset, view.buffer.name)
    home = Home.ARENA if view.buffer.home is views.Home.ARENA else Home.WEIGHTS
    return Argument(home, view.buffer.offset + offset)
