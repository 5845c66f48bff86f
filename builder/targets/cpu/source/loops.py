"""Loops in C++: element-wise chains, functions along an axis, gathers, small matrix products.

Every loop goes token by token, and what is inside has a fixed length: whatever a compiler vectorises, an element's
arithmetic does not depend on how many tokens a step has.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ....lowering.axes import (
    Axis,
    axes_of,
    axis_operands,
    chain_of,
    elements_operands,
    gather_operands,
    matmul_operands,
)
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
from .forms import FORMS
from .spelling import TYPES, literal, size
from .writer import Writer


def write(call: Call, out: Writer) -> None:
    """Add the lines of a call that is a loop. Raises TypeError for any other."""
    match call:
        case LoopCall():
            _loop(call, out)
        case AxisCall():
            _along_axis(call, out)
        case GatherElementsCall():
            _gather_elements(call, out)
        case GatherCall():
            _gather(call, out)
        case ScatterElementsCall():
            _scatter_elements(call, out)
        case MatMulCall():
            _matmul(call, out)
        case _:
            raise TypeError(f"no C++ for {type(call).__name__}")


def index(terms: list[tuple[str, int]], offset: int = 0) -> str:
    """`offset + i0 * s0 + ...` without what is zero."""
    parts = [str(offset)] if offset else []
    parts += [name if stride == 1 else f"{name} * {stride}" for name, stride in terms if stride]
    return " + ".join(parts) or "0"


@dataclass
class Nest:
    """Writes nested loops: the outermost axis in parallel over tokens, the others as plain loops."""

    out: Writer
    depth: int = 0

    def add(self, text: str) -> None:
        self.out.add("  " * (self.depth + 1) + text)

    def open(self, axes: list[Axis], work: int) -> list[str]:
        """Open loops over all axes; the names of their counters. `work`: elements touched in one outermost turn."""
        names: list[str] = []
        if not axes:  # a block, for the names of values
            self.add("{")
            self.depth += 1
        for number, axis in enumerate(axes):
            name = f"i{number}" if axis.size.is_static else "t"
            if not names and not axis.size.is_static:
                self.add(f"es::engine::for_each_row(pool, {size(axis.size)}, {work}, [&](int64_t t) {{")
            else:
                self.add(f"for (int64_t {name} = 0; {name} < {size(axis.size)}; ++{name}) {{")
            names.append(name)
            self.depth += 1
        return names

    def close(self, axes: list[Axis]) -> None:
        if not axes:
            self.depth -= 1
            self.add("}")
        for number in reversed(range(len(axes))):
            self.depth -= 1
            parallel = number == 0 and not axes[0].size.is_static
            self.add("});" if parallel else "}")


def _loop(call: LoopCall, out: Writer) -> None:
    """Element-wise chains: every intermediate result stays in a register."""
    chain = chain_of(call)
    exprs, axes = chain.exprs, chain.axes
    in_vectors = bool(axes) and axes[-1].size.is_static and can_vectorise(exprs, axes[-1])
    nest = Nest(out)
    outer = axes[:-1] if in_vectors else axes
    names = nest.open(outer, _work(axes))
    if in_vectors:
        names = [*names, "i"]
        nest.add(f"es::engine::for_each_vector({size(axes[-1].size)}, [&](int64_t i, auto lanes) {{")
        nest.depth += 1

    def place(number: int, view: View) -> str:
        terms = [(name, axis.strides[number]) for name, axis in zip(names, axes, strict=True)]
        return f"{out.pointer(view)}[{index(terms, view.offset)}]"

    values: dict[int, str] = {}
    for number, leaf in enumerate(chain.leaves, len(chain.targets)):
        values[id(leaf)] = f"a{number - len(chain.targets)}"
        load = place(number, leaf)
        if in_vectors:
            load = f"es::engine::load(&{load}, lanes)" if axes[-1].strides[number] else f"es::VF::broadcast({load})"
        kind = "es::VF" if in_vectors else TYPES[leaf.dtype]
        nest.add(f"const {kind} {values[id(leaf)]} = {load};")
    for number, expr in enumerate(exprs):
        args = [_written(arg, values, in_vectors) for arg in expr.args]
        text = FORMS[expr.op].vector.format(*args) if in_vectors else formula(expr, args)  # type: ignore[union-attr]
        values[id(expr)] = f"v{number}"
        nest.add(f"const {'es::VF' if in_vectors else TYPES[expr.dtype]} v{number} = {text};")
    for number, (view, root) in enumerate(call.outputs):
        spot, value = place(number, view), values[id(root)]
        nest.add(f"es::engine::store({value}, &{spot}, lanes);" if in_vectors else f"{spot} = {value};")
    if in_vectors:
        nest.depth -= 1
        nest.add("});")
    nest.close(outer)


def can_vectorise(exprs: list[Expr], inner: Axis) -> bool:
    """Whether all of the chain is float arithmetic that has a vector form, over neighbouring elements."""
    operands = [arg for expr in exprs for arg in expr.args]
    return (
        all(stride in (0, 1) for stride in inner.strides)
        and all(expr.dtype is DType.F32 and FORMS[expr.op].vector is not None for expr in exprs)
        and all(operand.dtype is DType.F32 for operand in operands)
    )


def _written(operand: Operand, values: dict[int, str], in_vectors: bool) -> str:
    if not isinstance(operand, Scalar):
        return values[id(operand)]
    return f"es::VF::broadcast({literal(operand)})" if in_vectors else literal(operand)


def formula(expr: Expr, args: list[str]) -> str:
    text = FORMS[expr.op].scalar.format(*args)
    source = expr.args[-1].dtype
    if expr.op == "cast":
        return f"{args[0]} != 0" if expr.dtype is DType.BOOL else f"static_cast<{TYPES[expr.dtype]}>({args[0]})"
    if source is DType.I32 and expr.dtype is DType.F32 and expr.op not in ("load", "where"):
        return FORMS[expr.op].scalar.format(*(f"static_cast<float>({arg})" for arg in args))
    return text


def _work(axes: list[Axis]) -> int:
    work = 1
    for axis in axes:
        work *= axis.size.count
    return work


def _along_axis(call: AxisCall, out: Writer) -> None:
    """A function along the last axis, by a template of engine/loops.h."""
    length = call.x.shape[-1].count
    outer = call.x.shape[:-1]
    views = [call.x, *call.writes()]
    axes = axes_of(outer, axis_operands(call))
    nest = Nest(out)
    names = nest.open(axes, _work(axes) * length)
    arguments = []
    for number, view in enumerate(views):
        terms = [(name, axis.strides[number]) for name, axis in zip(names, axes, strict=True)]
        stride = view.strides[-1] if len(view.shape) > len(outer) else 0
        arguments += [f"{out.pointer(view)} + {index(terms, view.offset)}", str(stride)]
    if call.kind == "top_k":
        arguments.append(str(call.y.shape[-1].count))
    nest.add(f"es::engine::axis_{call.kind}({length}, {', '.join(arguments)});")
    nest.close(axes)


def _gather(call: GatherCall, out: Writer) -> None:
    """y[i.., j.., k..] = data[i.., indices[j..], k..]."""
    data, picks = gather_operands(call)
    axes = axes_of(call.y.shape, [call.y, data, picks])
    nest = Nest(out)
    names = nest.open(axes, _work(axes))

    def spot(number: int, view: View, extra: str = "") -> str:
        terms = [(name, item.strides[number]) for name, item in zip(names, axes, strict=True)]
        return f"{out.pointer(view)}[{index(terms, view.offset)}{extra}]"

    length, stride = call.data.shape[call.axis], call.data.strides[call.axis]
    nest.add(f"const int64_t pick = es::engine::wrapped({spot(2, picks)}, {size(length)});")
    nest.add(f"{spot(0, call.y)} = {spot(1, data, f' + pick * {stride}')};")
    nest.close(axes)


def _gather_elements(call: GatherElementsCall, out: Writer) -> None:
    """y[i, j, k] = data[i, indices[i, j, k], k]."""
    _elements(out, call.indices, call.axis, call.data, call.y, lambda along, beside: f"{beside} = {along};")


def _scatter_elements(call: ScatterElementsCall, out: Writer) -> None:
    """y[i, indices[i, j, k], k] = updates[i, j, k]; of several, the last."""
    _elements(out, call.indices, call.axis, call.y, call.updates, lambda along, beside: f"{along} = {beside};")


def _elements(
    out: Writer, indices: View, axis: int, along: View, beside: View, statement: Callable[[str, str], str]
) -> None:
    """A loop over `indices`, with an element of `beside` at each place and the one of `along` that it points to."""
    stride, views = along.strides[axis], elements_operands(indices, axis, along, beside)
    axes = axes_of(indices.shape, views)
    nest = Nest(out)
    names = nest.open(axes, _work(axes))
    terms = [[(name, item.strides[number]) for name, item in zip(names, axes, strict=True)] for number in range(3)]
    pick, target, source = (
        f"{out.pointer(view)}[{index([*terms[n], *more], view.offset)}]"
        for n, (view, more) in enumerate(zip(views, ([], [("pick", stride)], []), strict=True))
    )
    nest.add(f"const int64_t pick = es::engine::wrapped({pick}, {size(along.shape[axis])});")
    nest.add(statement(target, source))
    nest.close(axes)


def _matmul(call: MatMulCall, out: Writer) -> None:
    """Plain dot products, k ascending, for the small products that no plugin covers."""
    length = call.a.shape[-1].count
    a, b = matmul_operands(call)
    axes = axes_of(call.y.shape, [call.y, a, b])
    nest = Nest(out)
    names = nest.open(axes, _work(axes) * length)
    terms = [[(name, axis.strides[n]) for name, axis in zip(names, axes, strict=True)] for n in range(3)]
    left = index([*terms[1], ("k", call.a.strides[-1])], a.offset)
    right = index([*terms[2], ("k", call.b.strides[-2])], b.offset)
    nest.add("float sum = 0.0f;")
    nest.add(f"for (int64_t k = 0; k < {length}; ++k) {{")
    nest.add(f"  sum = std::fma({out.pointer(a)}[{left}], {out.pointer(b)}[{right}], sum);")
    nest.add("}")
    nest.add(f"{out.pointer(call.y)}[{index(terms[0], call.y.offset)}] = sum;")
    nest.close(axes)
