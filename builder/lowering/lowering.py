"""What operations are lowered with: the state of one lowering, and the table of handlers that ops_*.py fill.

A value of the network is, while lowering, one of: a View (it lies in memory), an Expr (element-wise work not yet
emitted, so that a chain becomes one loop), or a Scalar. Asking for `view(value)` emits the loop that is still owed.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir

from ...checkpoint.layouts.kv_cache import KvScales
from ...quantization.scheme import LinearScheme, WeightScheme
from ..config import BuildConfig
from ..passes import derived
from .dims import ONE, Dim, Shape, Symbol, parse_dim
from .expressions import Expr, Operand, Scalar
from .program import Call, LinearWeight, LoopCall, PlainWeight, Program
from .schemes import scheme_of_head, scheme_of_linear
from .stored_rows import Stored, stored_rows
from .views import Buffer, DType, Home, View, contiguous, new_buffer, show

if TYPE_CHECKING:
    from ..network import Network

_DTYPES = {
    ir.DataType.FLOAT: DType.F32,
    ir.DataType.DOUBLE: DType.F32,
    ir.DataType.FLOAT16: DType.F32,
    ir.DataType.BFLOAT16: DType.F32,
    ir.DataType.INT64: DType.I32,
    ir.DataType.INT32: DType.I32,
    ir.DataType.INT16: DType.I32,
    ir.DataType.INT8: DType.I32,
    ir.DataType.UINT8: DType.I32,
    ir.DataType.BOOL: DType.BOOL,
}
_INT32 = np.iinfo(np.int32)


class Unsupported(Exception):
    """This node cannot be lowered; the message says why. Collected, then raised all at once."""


Handler = Callable[["Lowering", ir.Node], None]


@dataclass(frozen=True)
class Entry:
    """A handler, and which inputs it needs as data (None: all). The others are attributes in disguise."""

    handler: Handler
    data_inputs: tuple[int, ...] | None


HANDLERS: dict[tuple[str, str], Entry] = {}


def lowers(*op_types: str, domain: str = "", data: tuple[int, ...] | None = None) -> Callable[[Handler], Handler]:
    """Register a handler for these operations."""

    def register(handler: Handler) -> Handler:
        for op_type in op_types:
            HANDLERS[domain, op_type] = Entry(handler, data)
        return handler

    return register


def entry_of(node: ir.Node) -> Entry | None:
    return HANDLERS.get((node.domain.removeprefix("ai.onnx"), node.op_type))


def path_of(node: ir.Node) -> str:
    """The module path a user knows the node by: that of its weight, else what the exporter called its result."""
    for value in node.inputs[1:]:
        if value is not None and value.name and value.name.endswith((".weight", ".bias")):
            return value.name.rpartition(".")[0]
    return node.outputs[0].name or node.op_type


def attribute(node: ir.Node, name: str, default: object) -> object:
    found = node.attributes.get(name)
    return default if found is None else found.value


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    return int(cast(int, attribute(node, name, default)))


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    return float(cast(float, attribute(node, name, default)))


def str_attribute(node: ir.Node, name: str, default: str) -> str:
    value = attribute(node, name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass
class Lowering:
    """One network being lowered."""

    network: "Network"
    config: BuildConfig
    stored: Stored = field(default_factory=dict)
    kv_scales: Mapping[str, KvScales] = field(default_factory=dict)
    program: Program = field(default_factory=Program)
    values: dict[ir.Value, Operand] = field(default_factory=dict)
    owners: dict[int, ir.Value] = field(default_factory=dict)  # id(Expr) -> the value it computes
    lowered: set[ir.Node] = field(default_factory=set)
    needed: set[ir.Node] = field(default_factory=set)
    _static: dict[ir.Value, bool] = field(default_factory=dict)
    _plain: dict[tuple[object, ...], PlainWeight] = field(default_factory=dict)
    _linear: dict[tuple[object, ...], LinearWeight] = field(default_factory=dict)

    # ---- facts about values

    def shape(self, value: ir.Value) -> Shape:
        if value.shape is None:
            raise Unsupported(f"the shape of {value.name!r} is not known")
        return tuple(parse_dim(dim if isinstance(dim, int) else str(dim.value)) for dim in value.shape)

    def dtype(self, value: ir.Value) -> DType:
        if value.dtype is None or value.dtype not in _DTYPES:
            raise Unsupported(f"{value.name!r} has the element type {value.dtype}")
        return _DTYPES[value.dtype]

    def is_parameter(self, value: ir.Value) -> bool:
        return value.name in self.network.parameters

    def is_static(self, value: ir.Value) -> bool:
        """Whether the value depends on parameters and constants alone, so that it is made at build time."""
        if value not in self._static:
            self._static[value] = derived.is_derived(value)
        return self._static[value]

    def constant(self, value: ir.Value | None) -> np.ndarray | None:
        """The data of a value that is known now; None when it depends on parameters or on the step."""
        if value is None or not self.is_static(value) or derived.depends_on_parameter(value):
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        return derived.evaluate(value, _no_parameter)

    def integers(self, value: ir.Value | None, what: str) -> list[int] | None:
        """The constant integers of an optional input that is an attribute in disguise."""
        if value is None:
            return None
        data = self.constant(value)
        if data is None:
            raise Unsupported(f"its {what} are computed at run time")
        return [int(item) for item in np.atleast_1d(data)]

    # ---- values

    def operand(self, value: ir.Value) -> Operand:
        """The value as an operand of element-wise work: nothing is emitted."""
        if value not in self.values:
            if not self.is_static(value):
                raise Unsupported(f"its input {value.name!r} could not be lowered")
            self.values[value] = self._static_operand(value)
        return self.values[value]

    def view(self, value: ir.Value) -> View:
        """The value in memory."""
        item = self.operand(value)
        if isinstance(item, View):
            return item
        view = self.new(value)
        self.store(value, view)
        return view

    def store(self, value: ir.Value, target: View) -> None:
        """Emit what puts the value into `target`; from then on it lies there, if nowhere else."""
        item = self.operand(value)
        if isinstance(item, Expr):
            self._emit_loop(value, item, target)
        else:
            load = Expr("load", (item,), target.dtype, target.shape)
            self.emit(LoopCall(value.name or "", [(target, load)]))
            if not isinstance(item, View):
                self.values[value] = target

    def assign(self, value: ir.Value, item: Operand) -> None:
        self.values[value] = item
        if isinstance(item, Expr):
            self.owners.setdefault(id(item), value)

    def new(self, value: ir.Value, shape: Shape | None = None) -> View:
        """A fresh buffer for the value."""
        return self.allocate(value.name or "value", self.shape(value) if shape is None else shape, self.dtype(value))

    def allocate(self, name: str, shape: Shape, dtype: DType = DType.F32) -> View:
        buffer = new_buffer(name, dtype, shape)
        if buffer is None:
            raise Unsupported(f"{name!r} of shape {show(shape)} has two sizes that vary")
        return contiguous(buffer, shape)

    def copy(self, view: View) -> View:
        """The same tensor, freshly laid out."""
        target = self.allocate(view.buffer.name + "_copy", view.shape, view.dtype)
        self.emit(LoopCall("copy", [(target, Expr("load", (view,), view.dtype, view.shape))]))
        return target

    def emit(self, call: Call) -> None:
        self.program.calls.append(call)

    # ---- forms that kernels take

    def reshaped(self, view: View, shape: Shape) -> View:
        """`view` under another shape, copied if it must be."""
        result = view.reshape(shape)
        if result is None:
            result = self.copy(view).reshape(shape)
        if result is None:
            raise Unsupported(f"the reshape of {show(view.shape)} to {show(shape)} does not keep tokens together")
        return result

    def matrix(self, view: View) -> View:
        """[..., C] as [M, C] with contiguous rows."""
        shape = (product(view.shape[:-1]), view.shape[-1])
        if view.strides[-1] != 1 and not view.shape[-1].is_one:
            view = self.copy(view)
        return self.reshaped(view, shape)

    def heads(self, view: View) -> View:
        """[..., D] as [T, H, D] with D contiguous, whatever the order of the leading dimensions."""
        if view.strides[-1] != 1 and not view.shape[-1].is_one:
            view = self.copy(view)
        return self.reshaped(*heads_first(view))

    # ---- weights

    def plain(self, value: ir.Value, *, bf16: bool = False, add: float = 0.0) -> PlainWeight:
        """The static value as a tensor of weights.bin."""
        key = (value, bf16, add)
        if key not in self._plain:
            shape = self.shape(value)
            buffer = Buffer(value.name or "constant", self.dtype(value), Symbol.ONE, size_of(shape), Home.WEIGHTS)
            self._plain[key] = PlainWeight(value, buffer, bf16, add)
            self.program.plain_weights.append(self._plain[key])
        return self._plain[key]

    def plain_view(self, value: ir.Value, *, add: float = 0.0) -> View:
        if not self.is_static(value):
            raise Unsupported(f"{value.name!r} would have to be a weight, but it is computed at run time")
        return contiguous(self.plain(value, add=add).buffer, self.shape(value))

    def vector(self, name: str, data: np.ndarray) -> View:
        """float32 [N], known now, in weights.bin; a constant of the network from now on."""
        shape, kind = ir.Shape(data.shape), ir.TensorType(ir.DataType.FLOAT)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=ir.tensor(data, name=name))
        self.network.graph.initializers[name] = value
        return self.plain_view(value)

    def linear(self, sources: Sequence[ir.Value], *, transposed: bool = False, is_head: bool = False) -> LinearWeight:
        """The packed form of a static matrix, or of a gate and an up matrix."""
        key = (tuple(sources), transposed)
        if key not in self._linear:
            first, second = (dim.count for dim in self.shape(sources[0]))
            n, k = (second, first) if transposed else (first, second)
            found = stored_rows(sources, self.stored)
            scheme = LinearScheme(
                self._scheme_of_plain(sources[0].name or "", k, is_head=is_head, is_stored=bool(found))
            )
            weight = LinearWeight(tuple(sources), n, k, scheme, transposed)
            if isinstance(found, str):
                weight.dequantized = found
            else:
                weight.stored, weight.scheme, weight.input_scale = found, found[0].scheme, found[0].input_scale
            self._linear[key] = weight
            self.program.linear_weights.append(weight)
        return self._linear[key]

    def _scheme_of_plain(self, name: str, k: int, *, is_head: bool, is_stored: bool) -> WeightScheme:
        """Of a layer of `k` inputs, not taken over as the checkpoint holds it; `is_stored`: it is quantized there."""
        if not is_head:
            return scheme_of_linear(self.config, name, k)
        others = not is_stored and any(weight.scheme is not None for weight in self.stored.values())
        return scheme_of_head(self.config, others_quantized=others)

    # ---- who still needs what

    def has_pending_users(self, value: ir.Value, inside: Set[ir.Value] = frozenset()) -> bool:
        """Whether something not yet emitted reads the value, other than the computations of `inside`."""
        if value.is_graph_output():
            return True
        for node in value.consumers():
            if node not in self.needed:
                continue
            if node not in self.lowered:
                return True
            if any(isinstance(self.values.get(out), Expr) and out not in inside for out in node.outputs):
                return True
        return False

    def may_overwrite(self, value: ir.Value, node: ir.Node) -> bool:
        """Whether `node` is the last to read the memory that `value` lies in, so that it may write there."""
        view = self.values[value]
        if not isinstance(view, View) or view.buffer.home is not Home.ARENA:
            return False
        first, last = view.columns()
        for other, item in self.values.items():
            if not isinstance(item, View) or item.buffer is not view.buffer:
                continue
            low, high = item.columns()
            if high < first or last < low:
                continue
            if other.is_graph_output():
                return False
            users = [user for user in other.consumers() if user is not node and user in self.needed]
            if any(user not in self.lowered for user in users):
                return False
            if any(isinstance(self.values.get(out), Expr) for user in users for out in user.outputs):
                return False
        return True

    # ---- private

    def _static_operand(self, value: ir.Value) -> Operand:
        data = self.constant(value)
        if data is not None and data.size == 1:
            return scalar_of(data, self.dtype(value))
        return self.plain_view(value)

    def _emit_loop(self, value: ir.Value, root: Expr, target: View) -> None:
        root = self._settle(root, root)
        inside = {self.owners[id(e)] for e in root.walk() if id(e) in self.owners}
        outputs = [(target, root)]
        for expr in root.walk():
            owner = self.owners.get(id(expr))
            if expr is root or owner is None or owner is value or isinstance(self.values[owner], View):
                continue
            if _same_size(expr, root) and self.has_pending_users(owner, inside):
                outputs.append((self.new(owner), expr))
        self.emit(LoopCall(value.name or "", outputs))
        self.values[value] = target
        for view, expr in outputs[1:]:
            self.values[self.owners[id(expr)]] = view

    def _settle(self, expr: Expr, root: Expr) -> Expr:
        """`expr` with operands that are in memory by now as views, and smaller ones put in memory first."""
        args: list[Operand] = []
        for arg in expr.args:
            if isinstance(arg, Expr) and id(arg) in self.owners:
                owner = self.owners[id(arg)]
                if isinstance(self.values[owner], Expr) and not _same_size(arg, root) and not arg.is_cheap:
                    self.view(owner)
                item = self.values[owner]
                arg = self._settle(item, root) if isinstance(item, Expr) else item
            args.append(arg)
        if all(a is b for a, b in zip(args, expr.args, strict=True)):
            return expr
        expr.args = tuple(args)
        return expr


def heads_first(view: View) -> tuple[View, Shape]:
    """`view` [..., D] with its symbolic dimension in front, and the shape [T, H, D] it should get."""
    leading = range(len(view.shape) - 1)
    tokens = [axis for axis in leading if not view.shape[axis].is_static]
    others = [axis for axis in leading if view.shape[axis].is_static]
    rows = view.shape[tokens[0]] if tokens else ONE
    heads = product(tuple(view.shape[axis] for axis in others))
    return view.transpose((*tokens, *others, len(view.shape) - 1)), (rows, heads, view.shape[-1])


def _no_parameter(name: str) -> np.ndarray:
    raise LookupError(f"{name} is not known before weights are packed")


def product(shape: Shape) -> Dim:
    """The size of dimensions merged into one."""
    count, symbol = 1, Symbol.ONE
    for dim in shape:
        count *= dim.count
        if not dim.is_static:
            if symbol is not Symbol.ONE:
                raise Unsupported(f"the shape {show(shape)} has two sizes that vary")
            symbol = dim.symbol
    return Dim(count, symbol)


def size_of(shape: Shape) -> int:
    size = product(shape)
    if not size.is_static:
        raise Unsupported(f"a weight has the shape {show(shape)}, which varies")
    return size.count


def _same_size(a: Expr, b: Expr) -> bool:
    """Whether two expressions have an element for each other's: equal shapes but for leading ones."""
    shapes = [list(expr.shape) for expr in (a, b)]
    for shape in shapes:
        while shape and shape[0].is_one:
            shape.pop(0)
    return shapes[0] == shapes[1]


def scalar_of(data: np.ndarray, dtype: DType) -> Scalar:
    """The one element of `data`, as it lies in memory here."""
    item = data.reshape(()).item()
    if dtype is DType.F32:
        return Scalar(float(np.float32(item)), dtype)
    if dtype is DType.BOOL:
        return Scalar(bool(item), dtype)
    return Scalar(int(min(max(item, _INT32.min), _INT32.max)), dtype)
