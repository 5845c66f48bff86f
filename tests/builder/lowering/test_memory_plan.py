"""The arena: buffers alive at the same time never share a byte, and space is used again."""

from hypothesis import given
from hypothesis import strategies as st

from enginesmith.builder.lowering.memory_plan import ALIGNMENT, Lifetime, align, best_gap, place

lifetimes = st.lists(
    st.builds(
        lambda first, length, nbytes: Lifetime(first, first + length, nbytes),
        st.integers(0, 30),
        st.integers(0, 12),
        st.integers(1, 5000),
    ),
    max_size=40,
)


@given(lifetimes)
def test_buffers_alive_together_do_not_overlap(items):
    offsets, total = place(items)
    for i, (a, at) in enumerate(zip(items, offsets, strict=True)):
        assert at % ALIGNMENT == 0
        assert at + a.nbytes <= total
        for b, bt in zip(items[:i], offsets[:i], strict=True):
            if a.meets(b):
                assert at + a.nbytes <= bt or bt + b.nbytes <= at


@given(lifetimes)
def test_the_arena_is_no_smaller_than_the_busiest_moment(items):
    _, total = place(items)
    moments = range(max((item.last for item in items), default=0) + 1)
    busiest = max((sum(align(i.nbytes) for i in items if i.first <= t <= i.last) for t in moments), default=0)
    assert total >= busiest
    assert total <= sum(align(item.nbytes) for item in items)


def test_a_chain_of_layers_needs_two_buffers():
    chain = [Lifetime(i, i + 1, 1000) for i in range(100)]
    assert place(chain)[1] == 2 * align(1000)


def test_the_smallest_gap_that_fits_is_taken():
    taken = [(0, 64), (1088, 2000), (2256, 3000)]  # gaps of 1024 and 256 bytes
    assert best_gap(taken, 200) == 2000
    assert best_gap(taken, 300) == 64
    assert best_gap(taken, 2000) == 3000
