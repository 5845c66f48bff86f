"""Which values later calls still read, while calls are emitted one after another."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import onnx_ir as ir

from .expressions import Expr, Operand
from .views import Home, View


@dataclass
class Liveness:
    """`operands`: what every value is by now. `needed`: nodes that the logits depend on; `lowered`: those done."""

    operands: Mapping[ir.Value, Operand]
    needed: Set[ir.Node]
    lowered: set[ir.Node] = field(default_factory=set)

    def has_pending_users(self, value: ir.Value, inside: Set[ir.Value] = frozenset()) -> bool:
        """Whether something not yet emitted reads the value, other than the computations of `inside`."""
        if value.is_graph_output():
            return True
        for node in value.consumers():
            if node not in self.needed:
                continue
            if node not in self.lowered:
                return True
            if any(isinstance(self.operands.get(out), Expr) and out not in inside for out in node.outputs):
                return True
        return False

    def may_overwrite(self, value: ir.Value, node: ir.Node) -> bool:
        """Whether `node` is the last to read the memory that `value` lies in, so that it may write there."""
        view = self.operands[value]
        if not isinstance(view, View) or view.buffer.home is not Home.ARENA:
            return False
        first, last = view.columns()
        for other, item in self.operands.items():
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
            if any(isinstance(self.operands.get(out), Expr) for user in users for out in user.outputs):
                return False
        return True
