"""Generated Triton kernels: element-wise chains, functions along an axis, gathers, small matrix products.

A lane computes one element, or a program one row along an axis: an element's arithmetic does not depend on how many
tokens a step has.
"""

import math
from dataclasses import dataclass, field

from ....lowering.axes import (
    Axis,
    axes_of,
    axis_operands,
    chain_of,
    elements_operands,
    gather_operands,
    matmul_operands,
)
from ....lowering.dims import Dim
from ....lowering.expressions import Expr, Operand, Scalar
from ....lowering.program import (
    AxisCall,
    Call,
    GatherCall,
    GatherElementsCall,
    LoopCall,
    MatMulCall,
    ScatterElementsCall,
)
from ....lowering.views import DType, View
from .axis_functions import MOST_AT_ONCE, axis_function
from .call import Context
from .forms import FORMS, OF_INTEGERS, TYPES
from .generated import kernel_of
from .launch import Argument, Extent, Launch, count, tiles

_MOST_LANES = 1024


def launches(call: Call, context: Context) -> list[Launch]:
    """The launches of a call that is a loop. Raises TypeError for any other."""
    match call:
        case LoopCall():
            return [_loop(call, context)]
        case AxisCall():
            return [_along_axis(call)]
        case GatherElementsCall():
            return [_gather_elements(call, context)]
        case GatherCall():
            return [_gather(call, context)]
        case ScatterElementsCall():
            return [_scatter_elements(call, context)]
        case MatMulCall():
            return [_matmul(call, context)]
        case _:
            raise TypeError(f"no Triton for {type(call).__name__}")


@dataclass
class Body:
    """The text of a kernel while it is written, and its parameters."""

    lines: list[str] = field(default_factory=list)
    arguments: dict[str, Argument] = field(default_factory=dict)

    def add(self, text: str) -> None:
        self.lines.append("    " + text)

    def pointer(self, view: View) -> str:
        """The parameter that points to the view's first element."""
        for name, argument in self.arguments.items():
            if argument is view:
                return name
        name = f"p{len(self.arguments)}"
        self.arguments[name] = view
        return name

    def launch(self, name: str, grid: Extent, constants: dict[str, int], num_warps: int = 4) -> Launch:
        parameters = [*self.arguments, *(f"{constant}: tl.constexpr" for constant in constants)]
        source = "\n".join(["@triton.jit", f"def {name}({', '.join(parameters)}):", *self.lines, ""])
        return Launch(kernel_of(source, name), self.arguments, (grid,), constants, num_warps)


@dataclass
class Lanes:
    """Lanes over all elements of some axes: `names` of their coordinates, and `live`, the lanes that are one."""

    body: Body
    axes: list[Axis]
    grid: Extent
    block: int
    names: list[str]

    def place(self, number: int, extra: str = "") -> str:
        """Where the lane's element of operand `number` lies, in elements from the view's first."""
        return index([(name, axis.strides[number]) for name, axis in zip(self.names, self.axes, strict=True)], extra)

    def load(self, view: View, number: int, extra: str = "") -> str:
        return _loaded(f"tl.load({self.body.pointer(view)} + {self.place(number, extra)}, mask=live, other=0)", view)

    def store(self, view: View, number: int, value: str, extra: str = "") -> None:
        self.body.add(f"tl.store({self.body.pointer(view)} + {self.place(number, extra)}, {value}, mask=live)")

    def launch(self, name: str) -> Launch:
        return self.body.launch(name, self.grid, {"BLOCK": self.block})


def index(terms: list[tuple[str, int]], extra: str = "") -> str:
    """`i0 * s0 + ...` without what is zero."""
    parts = [name if stride == 1 else f"{name} * {stride}" for name, stride in terms if stride]
    return " + ".join([*parts, extra] if extra else parts) or "lane * 0"


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()


def _lanes(body: Body, axes: list[Axis], context: Context) -> Lanes:
    inner = math.prod(axis.size.count for axis in axes)
    symbolic = next((axis.size for axis in axes if not axis.size.is_static), None)
    block = power_of_two(min(inner, _MOST_LANES)) if symbolic is None else _MOST_LANES
    total = str(inner)
    if symbolic is not None:
        body.arguments["count"] = count(symbolic)
        total = f"count * {inner}"
    is_wide = inner * max(context.max_num_tokens, context.max_batch_size) >= 1 << 31
    body.add(f"lane = tl.program_id(0){'.to(tl.int64)' * is_wide} * BLOCK + tl.arange(0, BLOCK)")
    body.add(f"live = lane < {total}")
    grid = tiles(Dim(inner) if symbolic is None else Dim(inner, symbolic.symbol), block)
    return Lanes(body, axes, grid, block, _coordinates(body, axes, "lane"))


def _coordinates(body: Body, axes: list[Axis], source: str) -> list[str]:
    """The coordinates along each axis of a number that counts elements, the last axis the fastest."""
    names, rest = [], source
    for number in reversed(range(len(axes))):
        name = f"i{number}"
        names.append(name)
        if number == 0:
            body.add(f"{name} = {rest}")
            continue
        body.add(f"{name} = {rest} % {axes[number].size.count}")
        body.add(f"r{number} = {rest} // {axes[number].size.count}")
        rest = f"r{number}"
    return names[::-1]


def _loaded(text: str, view: View) -> str:
    if view.dtype is DType.BOOL:
        return f"{text} != 0"
    return f"{text}.to(tl.float32)" if view.dtype is DType.BF16 else text


def _loop(call: LoopCall, context: Context) -> Launch:
    """Element-wise chains: every intermediate result stays in a register."""
    chain = chain_of(call)
    body = Body()
    lanes = _lanes(body, chain.axes, context)
    values: dict[int, str] = {}
    for number, leaf in enumerate(chain.leaves):
        values[id(leaf)] = f"a{number}"
        body.add(f"a{number} = {lanes.load(leaf, len(chain.targets) + number)}")
    for number, expr in enumerate(chain.exprs):
        args = [_written(body, arg, values) for arg in expr.args]
        values[id(expr)] = f"v{number}"
        body.add(f"v{number} = {formula(expr, args)}")
    for number, (view, root) in enumerate(call.outputs):
        lanes.store(view, number, values[id(root)])
    return lanes.launch("loop")


def _written(body: Body, operand: Operand, values: dict[int, str]) -> str:
    if isinstance(operand, Scalar) and id(operand) not in values:
        values[id(operand)] = name = f"c{len(values)}"
        body.add(f"{name} = tl.full((BLOCK,), {literal(operand)}, {TYPES[operand.dtype]})")
    return values[id(operand)]


def literal(scalar: Scalar) -> str:
    """The number as Triton reads it back exactly."""
    if scalar.dtype is DType.F32:
        value = float(scalar.value)
        return repr(value) if abs(value) < float("inf") else f'float("{value}")'
    return str(int(scalar.value))


def formula(expr: Expr, args: list[str]) -> str:
    source = expr.args[-1].dtype
    if expr.op == "cast":
        return f"{args[0]} != 0" if expr.dtype is DType.BOOL else f"{args[0]}.to({TYPES[expr.dtype]})"
    if source is DType.I32 and expr.dtype is DType.F32 and expr.op not in ("load", "where"):
        return FORMS[expr.op].format(*(f"{arg}.to(tl.float32)" for arg in args))
    forms = {**FORMS, **OF_INTEGERS} if expr.dtype is DType.I32 else FORMS
    return forms[expr.op].format(*args)


def _gather(call: GatherCall, context: Context) -> Launch:
    """y[i.., j.., k..] = data[i.., indices[j..], k..]."""
    body = Body()
    data, picks = gather_operands(call)
    lanes = _lanes(body, axes_of(call.y.shape, [call.y, data, picks]), context)
    _pick(body, lanes.load(picks, 2), call.data.shape[call.axis])
    body.add(f"value = {lanes.load(data, 1, f'pick * {call.data.strides[call.axis]}')}")
    lanes.store(call.y, 0, "value")
    return lanes.launch("gather")


def _gather_elements(call: GatherElementsCall, context: Context) -> Launch:
    """y[i, j, k] = data[i, indices[i, j, k], k]."""
    body = Body()
    views = elements_operands(call.indices, call.axis, call.data, call.y)
    lanes = _lanes(body, axes_of(call.indices.shape, views), context)
    _pick(body, lanes.load(views[0], 0), call.data.shape[call.axis])
    body.add(f"value = {lanes.load(views[1], 1, f'pick * {call.data.strides[call.axis]}')}")
    lanes.store(views[2], 2, "value")
    return lanes.launch("gather_elements")


def _scatter_elements(call: ScatterElementsCall, context: Context) -> Launch:
    """y[i, indices[i, j, k], k] = updates[i, j, k]; a lane takes all j in order, so that of several the last stays."""
    body, axis = Body(), call.axis
    operands = elements_operands(call.indices, axis, call.y, call.updates)
    views = [_without(view, axis) for view in operands]
    lanes = _lanes(body, axes_of(views[0].shape, views), context)
    length, steps = call.indices.shape[axis], [view.strides[axis] for view in operands]
    body.add(f"for j in range({length.count}):")
    body.add(f"    pick = {lanes.load(views[0], 0, f'j * {steps[0]}')}")
    body.add(f"    pick = tl.where(pick < 0, pick + {call.y.shape[axis].count}, pick)")
    body.add(f"    value = {lanes.load(views[2], 2, f'j * {steps[2]}')}")
    target = f"{body.pointer(views[1])} + {lanes.place(1, f'pick * {call.y.strides[axis]}')}"
    body.add(f"    tl.store({target}, value, mask=live)")
    return lanes.launch("scatter_elements")


def _without(view: View, axis: int) -> View:
    """A view at 0 along an axis."""
    shape, strides = view.shape, view.strides
    return View(view.buffer, shape[:axis] + shape[axis + 1 :], strides[:axis] + strides[axis + 1 :], view.offset)


def _pick(body: Body, loaded: str, length: Dim) -> None:
    """An index along an axis, which may count from its end."""
    body.add(f"pick = {loaded}")
    if length.is_static:
        body.add(f"pick = tl.where(pick < 0, pick + {length.count}, pick)")


def _matmul(call: MatMulCall, context: Context) -> Launch:
    """A dot product a lane, k ascending, for the small products that no plugin covers."""
    body = Body()
    a, b = matmul_operands(call)
    lanes = _lanes(body, axes_of(call.y.shape, [call.y, a, b]), context)
    body.add("sum = tl.zeros((BLOCK,), tl.float32)")
    body.add(f"for k in range({call.a.shape[-1].count}):")
    body.add(f"    left = {lanes.load(a, 1, f'k * {call.a.strides[-1]}')}")
    body.add(f"    right = {lanes.load(b, 2, f'k * {call.b.strides[-2]}')}")
    body.add("    sum = tl.fma(left, right, sum)")
    lanes.store(call.y, 0, "sum")
    return lanes.launch("matmul")


def _along_axis(call: AxisCall) -> Launch:
    """A program for every index of the other axes."""
    body, outer = Body(), call.x.shape[:-1]
    axes = axes_of(outer, axis_operands(call))
    body.add("lane = tl.program_id(0)")
    names = _coordinates(body, axes, "lane")
    steps = {}
    for number, (name, view) in enumerate(zip(("x", "y", "y2"), (call.x, *call.writes()), strict=False)):
        place = index([(i, axis.strides[number]) for i, axis in zip(names, axes, strict=True)])
        body.add(f"{name} = {body.pointer(view)} + {place}")
        steps[f"{name}_step"] = view.strides[-1] if len(view.shape) > len(outer) else 0
    length = call.x.shape[-1].count
    kept = call.y.shape[-1].count if call.kind == "top_k" else 1
    block = power_of_two(min(length, MOST_AT_ONCE) if call.kind == "arg_max" else length)
    for line in axis_function(call.kind, call.x.dtype, length=length, kept=kept, **steps):
        body.add(line)
    symbolic = [axis.size for axis in axes if not axis.size.is_static]
    rows = Dim(math.prod(axis.size.count for axis in axes), *(size.symbol for size in symbolic))
    return body.launch(call.kind, tiles(rows), {"BLOCK": block})
