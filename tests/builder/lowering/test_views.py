"""Views against NumPy: a view's elements are those of the array it stands for, or the view does not exist."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.builder.lowering.dims import Dim, Symbol, parse_dim
from enginesmith.builder.lowering.views import Buffer, DType, View, contiguous, new_buffer

TOKENS = 3  # what T is in these tests


def size(dim: Dim) -> int:
    return dim.count * (1 if dim.is_static else TOKENS)


def memory_of(buffer: Buffer) -> np.ndarray:
    return np.arange(buffer.row_size * (TOKENS if buffer.symbol is Symbol.TOKENS else 1))


def elements(view: View) -> np.ndarray:
    """The view's elements as an array, read through its strides."""
    memory = memory_of(view.buffer)
    index = np.full((), view.offset)
    for dim, stride in zip(view.shape, view.strides, strict=True):
        index = index[..., None] + np.arange(size(dim)) * stride
    return memory[index]


def tensor(*sizes: int | str) -> View:
    shape = tuple(parse_dim(size) for size in sizes)
    buffer = new_buffer("b", DType.F32, shape)
    assert buffer is not None
    return contiguous(buffer, shape)


def dims(*sizes: int | str) -> tuple[Dim, ...]:
    return tuple(parse_dim(size) for size in sizes)


def test_every_element_of_a_fresh_buffer_has_its_own_place():
    for sizes in [(1, "T", 6), (1, 4, "T", 5), ("3*T", 2), (7,), (2, "T*2")]:
        found = elements(tensor(*sizes))
        assert sorted(found.reshape(-1)) == list(memory_of(tensor(*sizes).buffer))


def test_tokens_lie_outermost_whatever_the_order_of_the_shape():
    assert tensor(1, 4, "T", 5).strides == (0, 5, 20, 1)


def test_merged_heads_are_a_view():
    attention = tensor(1, "T", 4, 5)
    merged = attention.reshape(dims(1, "T", 20))
    assert merged is not None
    np.testing.assert_array_equal(elements(merged), elements(attention).reshape(1, TOKENS, 20))


def test_heads_of_a_merged_projection_are_a_view_with_the_wider_stride():
    qkv = tensor(1, "T", 20)
    key = qkv.slice(2, 8, 4).reshape(dims(1, "T", 2, 2))
    assert key is not None
    turned = key.transpose((0, 2, 1, 3))
    assert (turned.offset, turned.strides) == (8, (0, 2, 20, 1))
    np.testing.assert_array_equal(
        elements(turned), elements(qkv)[:, :, 8:12].reshape(1, TOKENS, 2, 2).transpose(0, 2, 1, 3)
    )


def test_heads_before_tokens_cannot_be_merged_without_a_copy():
    assert tensor(1, 4, "T", 5).reshape(dims(1, "4*T", 5)) is None


def test_tokens_times_a_number_can_be_merged_and_split():
    merged = tensor("T", 3, 4).reshape(dims("3*T", 4))
    assert merged is not None
    np.testing.assert_array_equal(elements(merged), elements(tensor("T", 3, 4)).reshape(TOKENS * 3, 4))
    back = merged.reshape(dims("T", 12))
    assert back is not None
    np.testing.assert_array_equal(elements(back), elements(tensor("T", 12)))


def test_two_varying_sizes_have_no_buffer():
    assert new_buffer("mask", DType.F32, dims("T", "T")) is None


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes of the same number of elements."""
    primes = draw(st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=5))

    def grouped() -> list[int]:
        sizes, current = [], 1
        for prime in primes:
            current *= prime
            if draw(st.booleans()):
                sizes.append(current)
                current = 1
        return [*sizes, current]

    return grouped(), grouped()


@given(splits(), st.randoms())
def test_a_reshape_that_is_a_view_has_the_same_elements_in_the_same_order(shapes, random):
    before, after = shapes
    view = tensor("T", *before)
    axes = list(range(1, len(before) + 1))
    random.shuffle(axes)
    turned = view.transpose((0, *axes))
    result = turned.reshape(dims("T", *after))
    if axes == sorted(axes):
        assert result is not None
    if result is not None:
        np.testing.assert_array_equal(elements(result), elements(turned).reshape(TOKENS, *after))


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 3))
def test_columns_hold_every_element_of_a_slice(count, start, step):
    view = tensor("T", 24).slice(1, start, count, step)
    first, last = view.columns()
    columns = elements(view) % 24
    assert (first, last) == (columns.min(), columns.max())
