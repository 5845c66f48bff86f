"""What Transformers makes of a checkpoint's tensors while it loads them: renamed, stacked, joined, cut.

Its own conversion mapping is applied, on tensors without data, and what it does to them is recorded.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from ...checkpoint.assembly import Assembly
from ...errors import CheckpointError, UnsupportedModelError, reason
from .skeleton import make_skeleton

Shapes = Mapping[str, Sequence[int]]
_Sources = tuple[Any, dict[str, list[str]]]


def conversions(config: Mapping[str, Any], tensors: Shapes) -> dict[str, Assembly]:
    """Parameter -> what it is made of, of those that the checkpoint's `tensors` hold under other names or in parts.

    `config`: raw. Raises CheckpointError for tensors that do not go together, and UnsupportedModelError for a
    conversion that does more than to move elements.
    """
    model: Any = make_skeleton(config, 1)
    made: dict[str, Assembly] = {}
    known: dict[object, tuple[list[str], Assembly]] = {}
    shapes_here = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for target, (converter, collected) in _sources(model, tensors).items():
        names = [name for each in collected.values() for name in each]
        if converter is None:
            made.update((target, _stored(name, tensors)) for name in names if name != target)
            continue
        shapes = [(pattern, tuple(tuple(tensors[name]) for name in each)) for pattern, each in collected.items()]
        alike = (id(converter), *shapes, shapes_here[target])
        if alike in known:  # in another layer: of hundreds of experts it takes a while to find out
            others, assembly = known[alike]
            made[target] = assembly.renamed(dict(zip(others, names, strict=True)))
            continue
        found = _converted(model, target, converter, collected, tensors)
        if list(found) == [target]:
            known[alike] = names, found[target]
        made |= found
    return made


def _sources(model: Any, tensors: Shapes) -> dict[str, _Sources]:
    """By the first parameter that is made of them: a converter, None where names change at most, and the stored tensors
    by the converter's pattern. This is how Transformers goes through a checkpoint."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    transforms = get_model_conversion_mapping(model)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    state, prefix = model.state_dict(), model.base_model_prefix
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    found: dict[str, _Sources] = {}
    for name in sorted(tensors, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], prefix, state)
        if target in state:
            _, collected = found.setdefault(target, (by_pattern.get(pattern or ""), {}))
            collected.setdefault(pattern or "", []).append(name)
    return found


def _stored(name: str, tensors: Shapes) -> Assembly:
    return Assembly("stored", tuple(tensors[name]), name=name)


def _converted(
    model: Any, target: str, converter: Any, collected: dict[str, list[str]], tensors: Shapes
) -> dict[str, Assembly]:
    """Every parameter that a converter makes of what was collected for it."""
    names = [name for each in collected.values() for name in each]
    made: list[str] = []

    def convert(*parts: torch.Tensor) -> list[torch.Tensor]:
        given, fresh = iter(parts), copy.deepcopy(converter)
        for pattern, each in collected.items():
            for name in each:
                fresh.add_tensor(target, name, pattern, next(given))
        results = fresh.convert(target, model=model, config=model.config)
        made[:] = results
        return [value[0] if isinstance(value, list) else value for value in results.values()]

    try:
        graph = make_fx(convert)(*(torch.empty(tuple(tensors[name]), device="meta") for name in names)).graph
    except Exception as error:
        raise CheckpointError(
            f"{target} cannot be made of the {len(names)} tensors {names[0]} ... {names[-1]}: {reason(error)}. "
            "Check that config.json belongs to these weights and that every weight file was downloaded."
        ) from error
    return dict(zip(made, _recorded(graph, [_stored(name, tensors) for name in names]), strict=True))


def _recorded(graph: Graph, stored: Sequence[Assembly]) -> list[Assembly]:
    """The outputs of a program that moves elements of its inputs, as assemblies of them."""
    values: dict[Node, Any] = {}
    inputs = iter(stored)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "output":
            return [values[result] for result in node.args[0]]
        else:
            values[node] = _moved(node, values)
    raise ValueError("a program without an output")


def _moved(node: Node, values: Mapping[Node, Any]) -> Any:
    """What one operator makes of assemblies: an assembly, or several of them."""
    name = str(getattr(node.target, "_opname", getattr(node.target, "__name__", node.target)))
    arguments: Any = node.args
    given, *args = arguments
    x: Any = [values[each] for each in given] if isinstance(given, (list, tuple)) else values[given]
    shape = tuple(node.meta["val"].shape) if isinstance(node.meta["val"], torch.Tensor) else ()
    match name:
        case "getitem":
            return x[args[0]]
        case "clone" | "alias" | "detach" | "_to_copy":
            return x
        case "stack" | "cat":
            axis = (args[0] if args else 0) % len(shape)
            return Assembly("stack" if name == "stack" else "concat", shape, tuple(x), axis=axis)
        case "split" | "split_with_sizes":
            axis = (args[1] if len(args) > 1 else 0) % len(x.shape)
            sizes = [part.shape[axis] for part in node.meta["val"]]
            return [_cut(x, axis, sum(sizes[:i]), size) for i, size in enumerate(sizes)]
        case "slice":
            axis, first, _, step = (*args, *(0, 0, 0, 1)[len(args) :])
            return _cut(x, axis, first, shape[axis], step)
        case "transpose" | "permute" | "t":
            return Assembly("transpose", shape, (x,), order=_order(name, args, len(shape)))
        case "view" | "_unsafe_view" | "reshape" | "squeeze" | "unsqueeze":
            return x if x.shape == shape else Assembly("reshape", shape, (x,))
    raise UnsupportedModelError(f"Transformers computes with {_first_name(x)} when it loads it ({name})")


def _cut(x: Assembly, axis: int, first: int, size: int, step: int = 1) -> Assembly:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return Assembly("slice", shape, (x,), axis=axis, first=first, step=step)


def _order(name: str, args: Any, rank: int) -> tuple[int, ...]:
    if name == "permute":
        return tuple(axis % rank for axis in args[0])
    order = list(range(rank))
    a, b = (0, rank - 1) if name == "t" else args
    order[a], order[b] = order[b], order[a]
    return tuple(order)


def _first_name(x: Any) -> str:
    return (x[0] if isinstance(x, list) else x).names()[0]
