"""Parameters that are made of several tensors: any slice is that of the whole, and reads no more than it needs."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.checkpoint.assembly import AssembledTensor, Assembly

STORED = {f"t{i}": np.arange(24.0).reshape(4, 6) + 100 * i for i in range(4)}


def stored(name: str) -> Assembly:
    return Assembly("stored", STORED[name].shape, name=name)


def whole(assembly: Assembly) -> np.ndarray:
    """What an assembly stands for, by NumPy alone."""
    parts = [whole(part) for part in assembly.parts]
    match assembly.kind:
        case "stored":
            return STORED[assembly.name]
        case "stack":
            return np.stack(parts, assembly.axis)
        case "concat":
            return np.concatenate(parts, assembly.axis)
        case "slice":
            index = assembly.first + assembly.step * np.arange(assembly.shape[assembly.axis])
            return np.take(parts[0], index, assembly.axis)
        case "transpose":
            return parts[0].transpose(assembly.order)
        case _:
            return parts[0].reshape(assembly.shape)


@st.composite
def above(draw: st.DrawFn, inner: st.SearchStrategy[Assembly]) -> Assembly:
    """An assembly that has others for its parts."""
    part = draw(inner)
    rank, axis = len(part.shape), draw(st.integers(0, len(part.shape) - 1))
    match draw(st.sampled_from(["stack", "concat", "slice", "transpose", "reshape"])):
        case "stack":
            return Assembly("stack", (*part.shape[:axis], 2, *part.shape[axis:]), (part, part), axis=axis)
        case "concat":
            length = 2 * part.shape[axis]
            return Assembly("concat", (*part.shape[:axis], length, *part.shape[axis + 1 :]), (part, part), axis=axis)
        case "slice":
            first, step = draw(st.integers(0, part.shape[axis] - 1)), draw(st.integers(1, 3))
            size = len(range(first, part.shape[axis], step))
            shape = (*part.shape[:axis], size, *part.shape[axis + 1 :])
            return Assembly("slice", shape, (part,), axis=axis, first=first, step=step)
        case "transpose":
            order = tuple(draw(st.permutations(range(rank))))
            return Assembly("transpose", tuple(part.shape[i] for i in order), (part,), order=order)
    return Assembly("reshape", (int(np.prod(part.shape)),), (part,))


ASSEMBLIES = st.recursive(st.sampled_from([stored(name) for name in STORED]), above, max_leaves=4)


@given(ASSEMBLIES, st.data())
def test_a_slice_is_that_of_the_whole(assembly: Assembly, data: st.DataObject) -> None:
    again = Assembly.from_json(json.loads(json.dumps(assembly.to_json())))
    assert again == assembly
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, size)] * 2))) for size in assembly.shape]
    box = tuple(slice(*each) for each in bounds)
    expected = whole(assembly)[box]
    if expected.size:
        np.testing.assert_array_equal(AssembledTensor(again, STORED.__getitem__)[box], expected)
    np.testing.assert_array_equal(AssembledTensor(again, STORED.__getitem__).values(), whole(assembly))


def test_only_the_tensors_of_a_slice_are_read() -> None:
    halves = [Assembly("stack", (2, 4, 6), (stored(a), stored(b))) for a, b in (("t0", "t1"), ("t2", "t3"))]
    experts = Assembly("concat", (2, 8, 6), tuple(halves), axis=1)
    read: list[str] = []

    def counting(name: str) -> np.ndarray:
        read.append(name)
        return STORED[name]

    part = AssembledTensor(experts, counting)[1:2, 5:7, :]
    np.testing.assert_array_equal(part, STORED["t3"][None, 1:3])
    assert read == ["t3"]
    assert experts.names() == ["t0", "t1", "t2", "t3"]
