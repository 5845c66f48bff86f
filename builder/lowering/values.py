"""What the values of a network are while it is lowered, and the calls that put them into memory.

A value is one of: a View (it lies in memory), an Expr (element-wise work not yet emitted, so that a chain becomes one
loop), or a Scalar. Asking for `view(value)` emits the loop that is still owed.
"""

from dataclasses import dataclass, field

import onnx_ir as ir

from .dims import ONE, Shape
from .expressions import Expr, Operand
from .facts import Facts, Unsupported, product, scalar_of
from .liveness import Liveness
from .program import Call, LoopCall, Program
from .program_weights import ProgramWeights
from .views import DType, View, contiguous, new_buffer, show


@dataclass
class Values:
    """The operands of a network being lowered; calls are emitted into `program`."""

    facts: Facts
    weights: ProgramWeights
    liveness: Liveness
    program: Program
    operands: dict[ir.Value, Operand]
    _owners: dict[int, ir.Value] = field(default_factory=dict)  # id(Expr) -> the value it computes

    # ---- what a value is

    def operand(self, value: ir.Value) -> Operand:
        """The value as an operand of element-wise work: nothing is emitted."""
        if value not in self.operands:
            if not self.facts.is_static(value):
                raise Unsupported(f"its input {value.name!r} could not be lowered")
            self.operands[value] = self._static_operand(value)
        return self.operands[value]

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
                self.operands[value] = target

    def assign(self, value: ir.Value, item: Operand) -> None:
        self.operands[value] = item
        if isinstance(item, Expr):
            self._owners.setdefault(id(item), value)

    def emit(self, call: Call) -> None:
        self.program.calls.append(call)

    # ---- fresh memory

    def new(self, value: ir.Value) -> View:
        """A fresh buffer for the value."""
        return self.allocate(value.name or "value", self.facts.shape(value), self.facts.dtype(value))

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
        return self.reshaped(*_heads_first(view))

    # ---- private

    def _static_operand(self, value: ir.Value) -> Operand:
        data = self.facts.constant(value)
        if data is not None and data.size == 1:
            return scalar_of(data, self.facts.dtype(value))
        return self.weights.plain_view(value)

    def _emit_loop(self, value: ir.Value, root: Expr, target: View) -> None:
        root = self._settle(root, root)
        inside = {self._owners[id(e)] for e in root.walk() if id(e) in self._owners}
        outputs = [(target, root)]
        for expr in root.walk():
            owner = self._owners.get(id(expr))
            if expr is root or owner is None or owner is value or isinstance(self.operands[owner], View):
                continue
            if _same_size(expr, root) and self.liveness.has_pending_users(owner, inside):
                outputs.append((self.new(owner), expr))
        self.emit(LoopCall(value.name or "", outputs))
        self.operands[value] = target
        for view, expr in outputs[1:]:
            self.operands[self._owners[id(expr)]] = view

    def _settle(self, expr: Expr, root: Expr) -> Expr:
        """`expr` with operands that are in memory by now as views, and smaller ones put in memory first."""
        args: list[Operand] = []
        for arg in expr.args:
            if isinstance(arg, Expr) and id(arg) in self._owners:
                owner = self._owners[id(arg)]
                if isinstance(self.operands[owner], Expr) and not _same_size(arg, root) and not arg.is_cheap:
                    self.view(owner)
                item = self.operands[owner]
                arg = self._settle(item, root) if isinstance(item, Expr) else item
            args.append(arg)
        if all(a is b for a, b in zip(args, expr.args, strict=True)):
            return expr
        expr.args = tuple(args)
        return expr


def _heads_first(view: View) -> tuple[View, Shape]:
    """`view` [..., D] with its symbolic dimension in front, and the shape [T, H, D] it should get."""
    leading = range(len(view.shape) - 1)
    tokens = [axis for axis in leading if not view.shape[axis].is_static]
    others = [axis for axis in leading if view.shape[axis].is_static]
    rows = view.shape[tokens[0]] if tokens else ONE
    heads = product(tuple(view.shape[axis] for axis in others))
    return view.transpose((*tokens, *others, len(view.shape) - 1)), (rows, heads, view.shape[-1])


def _same_size(a: Expr, b: Expr) -> bool:
    """Whether two expressions have the same shape, leading dimensions of 1 aside."""
    shapes = [list(expr.shape) for expr in (a, b)]
    for shape in shapes:
        while shape and shape[0].is_one:
            shape.pop(0)
    return shapes[0] == shapes[1]
