"""From an exported PyTorch program to an ONNX network.

The program's own node shapes are trusted: reshapes become constants, so that nothing in the network computes a shape.
What would compute with the number of tokens, or mix tokens outside attention, is refused: tokens of several sequences
lie in one row, and only attention knows where each begins.

Handlers for PyTorch operators register themselves in HANDLERS; a handler takes the converter and the FX node, and
returns one value or a tuple of them. Values that depend on nothing are computed here, by PyTorch.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ...errors import UnsupportedModelError
from ...plugins.plugin import DOMAIN
from . import ops  # noqa: F401  (defines the operators)

OPSET = 23
WRAPPER_PREFIX = "wrapped."  # of the module paths of an exported program (see export.Packed)

Value: TypeAlias = ir.Value
FxNode: TypeAlias = Any  # a torch.fx.Node; the type of its arguments says nothing
Handler: TypeAlias = Callable[["Converter", FxNode], Value | tuple[Value, ...]]
HANDLERS: dict[Any, Handler] = {}
COMPLEX: dict[Any, Handler] = {}
"""Of operators that take or make complex numbers, whose values have a last dimension more, of two parts."""

DTYPES = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.int64: ir.DataType.INT64,
    torch.int32: ir.DataType.INT32,
    torch.uint8: ir.DataType.UINT8,
    torch.bool: ir.DataType.BOOL,
}

_FOLD_LIMIT = 1 << 22  # elements of a constant worth computing here


def handles(*names: str, table: dict[Any, Handler] = HANDLERS) -> Callable[[Handler], Handler]:
    """Register a handler for PyTorch operators, named as "add.Tensor" (namespace aten) or "enginesmith.linear"."""

    def register(handler: Handler) -> Handler:
        for name in names:
            table[find_operator(name)] = handler
        return handler

    return register


def find_operator(name: str) -> Any:
    parts = name.split(".")
    owner = torch.ops.enginesmith if parts[0] == DOMAIN else torch.ops.aten
    packet, overload, *_ = [*(parts[1:] if parts[0] == DOMAIN else parts), "default"]
    return getattr(getattr(owner, packet), overload)


def known_placeholders(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Placeholder name -> tensor, for those whose data is known: constants, and buffers that no checkpoint stores."""
    signature = program.graph_signature
    known: dict[str, Any] = program.constants
    sources = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    return {name: known[target] for name, target in sources.items() if target in known}


def unsupported_operators(program: torch.export.ExportedProgram) -> set[Any]:
    """Operators that no handler takes, and those that write into their inputs.

    What is computed of constants alone needs no handler.
    """
    known = set(known_placeholders(program))
    unsupported: set[Any] = set()
    for node in program.graph.nodes:
        if node.op != "call_function" or not _is_tensor(node.meta.get("val")):
            continue
        is_operator = isinstance(node.target, torch._ops.OpOverload)
        if is_operator and node.target._schema.is_mutable:
            unsupported.add(node.target)
        elif all(i.name in known for i in node.all_input_nodes) and all(map(_is_small, _parts(node.meta["val"]))):
            known.add(node.name)
        elif is_operator and node.target not in _handlers_of(node):
            unsupported.add(node.target)
    return unsupported


def is_complex(node: FxNode) -> bool:
    """Whether a node makes complex numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def _handlers_of(node: Node) -> dict[Any, Handler]:
    return COMPLEX if any(map(is_complex, [node, *node.all_input_nodes])) else HANDLERS


class Converter:
    """Builds one ir.Graph. `symbols` maps the program's size symbols to the names of the network's dimensions."""

    def __init__(self, symbols: dict[Any, str], weights: dict[str, Value], constants: dict[str, torch.Tensor]) -> None:
        """`weights` and `constants`: placeholder name -> parameter value, or tensor whose data is known."""
        self.graph = ir.Graph([], [], nodes=[], name="network", opset_imports={"": OPSET, DOMAIN: 1})
        self._symbols = symbols
        self._weights = weights
        self._constants: dict[Node, torch.Tensor] = {}
        self._constant_placeholders = constants
        self._values: dict[Node, Any] = {}
        self._derived: set[int] = {id(value) for value in weights.values()}
        self._taken: set[str] = {str(value.name) for value in weights.values()}
        self._counts: dict[str, int] = {}
        self._pool: dict[object, Value] = {}
        self._numbers: dict[str, int] = {}
        self._node: Node | None = None

    # -- the walk

    def run(self, graph: torch.fx.Graph, input_names: Sequence[str]) -> ir.Graph:
        names = iter(input_names)
        for node in graph.nodes:
            self._node = node
            if node.op == "placeholder":
                self._placeholder(node, names)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self.graph.outputs.extend(self.value(argument) for argument in node.args[0])
            elif node.op != "get_attr":
                raise UnsupportedModelError(f"{node.op} in a traced program")
        return self.graph

    def _placeholder(self, node: Node, names: Any) -> None:
        if node.name in self._weights:
            self._values[node] = self._weights[node.name]
        elif node.name in self._constant_placeholders:
            self._constants[node] = self._constant_placeholders[node.name]
        else:
            value = self.new_value(node.meta["val"], next(names))
            self.graph.inputs.append(value)
            self._values[node] = value

    def _call(self, node: Node) -> None:
        if not _is_tensor(node.meta.get("val")):
            return  # a size: its uses read it from their own shapes
        if self._fold(node):
            return
        handlers = _handlers_of(node)
        if node.target not in handlers:
            self.refuse("an operator that has no ONNX form here")
        self._values[node] = handlers[node.target](self, node)

    def _fold(self, node: Node) -> bool:
        inputs = node.all_input_nodes
        value = node.meta["val"]
        if not all(i in self._constants for i in inputs) or not all(map(_is_small, _parts(value))):
            return False
        if _holds_symbol((node.args, node.kwargs)):
            return False
        call: Any = node.target
        args, kwargs = map_arg((node.args, dict(node.kwargs)), self._constants.__getitem__)
        self._constants[node] = call(*args, **kwargs)
        return True

    # -- what handlers use

    def value(self, argument: Any, dtype: torch.dtype | None = None) -> Value:
        """The ONNX value of a handler's argument: a node, a number, or a tensor; cast to `dtype` if given."""
        if isinstance(argument, Value):
            return argument
        if isinstance(argument, Node):
            if argument in self._constants:
                tensor = self._constants[argument]
                return self.constant(tensor if dtype is None else tensor.to(dtype))
            if argument not in self._values:
                self.refuse("a value computed from the number of tokens (positions must come from position_ids)")
            found = self._values[argument]
            return found if dtype is None else self.cast(found, dtype)
        if isinstance(argument, (bool, int, float)):
            return self.constant(torch.tensor(argument, dtype=dtype))
        if isinstance(argument, torch.Tensor):
            return self.constant(argument)
        return self.refuse(f"argument {argument!r}")

    def values(self, node: Node) -> tuple[Value, ...]:
        """The results of a node that has several."""
        return self._values[node]

    def constant(self, data: torch.Tensor | Sequence[int]) -> Value:
        """An initializer with data; equal ones are shared."""
        tensor = data if isinstance(data, torch.Tensor) else torch.tensor(data, dtype=torch.int64)
        array = tensor.detach().contiguous().numpy()
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._pool:
            name = self.unique("constant")
            value = ir.Value(name=name, const_value=ir.tensor(array.copy(), name=name))
            value.shape, value.dtype = ir.Shape(array.shape), DTYPES[tensor.dtype]
            self.graph.initializers[name] = value
            self._derived.add(id(value))
            self._pool[key] = value
        return self._pool[key]

    def new_value(self, like: torch.Tensor, name: str) -> Value:
        """A value with the shape and dtype of a (fake) tensor."""
        return ir.Value(
            name=self.unique(name), shape=ir.Shape(self.dims(like.shape)), type=ir.TensorType(DTYPES[like.dtype])
        )

    def emit(
        self, operator: str, inputs: Sequence[Any], *outputs: torch.Tensor, domain: str = "", **attributes: Any
    ) -> Any:
        """Add an ONNX node and return its value (a tuple if several). Each of `outputs` lends a shape and a dtype;
        none means the shape and dtype of the FX node itself. Attributes that are None are left out."""
        node = self._node
        assert node is not None
        likes = outputs or (_real(node.meta["val"]),)
        results = [self.new_value(like, node.name) for like in likes]
        values = [None if argument is None else self.value(argument) for argument in inputs]
        while values and values[-1] is None:
            values.pop()
        attributes = {key: _stored(attribute) for key, attribute in attributes.items() if attribute is not None}
        if values and all(value is None or self.is_derived(value) for value in values):
            self._derived.update(id(result) for result in results)
        self.graph.append(
            ir.Node(
                domain,
                operator,
                values,
                ir.convenience.convert_attributes(attributes),
                outputs=results,
                name=self.unique(f"{_module_path(node)}/{operator}"),
            )
        )
        return results[0] if len(results) == 1 else tuple(results)

    def cast(self, argument: Any, dtype: torch.dtype) -> Value:
        value = self.value(argument)
        if value.dtype == DTYPES[dtype]:
            return value
        like = torch.empty(0, dtype=dtype)
        result = self.emit("Cast", [value], like, to=DTYPES[dtype])
        result.shape = value.shape
        return result

    def reshape(self, argument: Any, *outputs: torch.Tensor) -> Value:
        """View a value in the shape of `outputs` (default: of the FX node)."""
        assert self._node is not None
        like = outputs[0] if outputs else _real(self._node.meta["val"])
        value = self.value(argument)
        dims = self.dims(like.shape)
        if tuple(value.shape or ()) == tuple(ir.Shape(dims)):
            return value
        sizes = [dim if isinstance(dim, int) else -1 for dim in dims]
        if sizes.count(-1) > 1:
            self.refuse("a reshape with two token dimensions")
        return self.emit("Reshape", [value, self.constant(sizes or torch.zeros(0, dtype=torch.int64))], like)

    def dims(self, shape: Sequence[Any]) -> list[int | str]:
        """Sizes as ints, or as names and expressions of the network's dimensions."""
        return [size if isinstance(size, int) else self._dim(size) for size in shape]

    def _dim(self, size: torch.SymInt) -> int | str:
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        unknown = expression.free_symbols - self._symbols.keys()
        if unknown:
            self.refuse("a shape that depends on the values of tensors")
        return str(expression.xreplace({s: type(s)(n, integer=True) for s, n in self._symbols.items()})).replace(
            " ", ""
        )

    def axis(self, tensor: Node, dim: int) -> int:
        """`dim` counted from the front, of an axis along which elements will be combined: never that of tokens."""
        shape = tensor.meta["val"].shape
        dim = dim % max(len(shape), 1)
        if shape and not isinstance(shape[dim], int):
            self.refuse("an operation across tokens")
        return dim

    def is_derived(self, value: Value) -> bool:
        """Whether a value depends on weights and constants alone."""
        return id(value) in self._derived

    def count(self, what: str) -> int:
        """How often this was asked before for `what`."""
        self._numbers[what] = self._numbers.get(what, -1) + 1
        return self._numbers[what]

    def unique(self, name: str) -> str:
        """`name`, or the first of name_1, name_2, ... that is free."""
        candidate = name
        while candidate in self._taken:
            self._counts[name] = self._counts.get(name, 0) + 1
            candidate = f"{name}_{self._counts[name]}"
        self._taken.add(candidate)
        return candidate

    def refuse(self, what: str) -> Any:
        where = f"{_module_path(self._node)}: " if self._node is not None else ""
        operator = f" ({self._node.target})" if self._node is not None and self._node.op == "call_function" else ""
        raise UnsupportedModelError(f"{where}{what}{operator} is not supported")


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def _parts(value: Any) -> Sequence[torch.Tensor]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _is_small(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape) and value.numel() <= _FOLD_LIMIT


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or (
        isinstance(value, (tuple, list)) and bool(value) and all(isinstance(v, torch.Tensor) for v in value)
    )


def _stored(attribute: Any) -> Any:
    """An attribute as it will be once stored: ONNX keeps floats in 32 bits."""
    return torch.tensor(attribute, dtype=torch.float32).item() if isinstance(attribute, float) else attribute


def _holds_symbol(arguments: Any) -> bool:
    found = False

    def look(node: Node) -> Node:
        nonlocal found
        found = found or not _is_tensor(node.meta["val"])
        return node

    map_arg(arguments, look)
    return found


def _module_path(node: Node | None) -> str:
    stack = (node.meta.get("nn_module_stack") or {}) if node is not None else {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.removeprefix(WRAPPER_PREFIX) or "network"
