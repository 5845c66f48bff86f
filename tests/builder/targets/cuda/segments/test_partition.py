"""Segments of random graphs: they hold every node that they may, once, and can run one after another."""

from graphlib import TopologicalSorter

from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.builder.targets.cuda.segments.partition import partition

Graph = tuple[list[set[int]], list[str | None]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Nodes of two kinds, which never read each other, among nodes of none."""
    kinds = draw(st.lists(st.sampled_from(["tokens", "rows", None]), max_size=25))
    feeds: list[set[int]] = []
    for node, kind in enumerate(kinds):
        allowed = [other for other in range(node) if None in (kind, kinds[other]) or kind == kinds[other]]
        feeds.append(draw(st.sets(st.sampled_from(allowed), max_size=4)) if allowed else set())
    return feeds, kinds


@given(graphs())
@settings(max_examples=50)
def test_every_node_of_a_kind_is_in_one_segment_and_no_other_is(graph: Graph):
    feeds, kinds = graph
    segments = partition(feeds, kinds)
    assert sorted(node for segment in segments for node in segment) == [n for n, kind in enumerate(kinds) if kind]
    assert all(len({kinds[node] for node in segment}) == 1 for segment in segments)
    assert all(segment == sorted(segment) for segment in segments)


@given(graphs())
@settings(max_examples=50)
def test_segments_run_one_after_another(graph: Graph):
    """With each segment as one node, no path comes back to it, and those before come first."""
    feeds, kinds = graph
    segments = partition(feeds, kinds)
    owner = {node: ("segment", number) for number, segment in enumerate(segments) for node in segment}
    whole = [owner.get(node, ("node", node)) for node in range(len(kinds))]
    reads: dict[tuple[str, int], set[tuple[str, int]]] = {name: set() for name in whole}
    for node, sources in enumerate(feeds):
        reads[whole[node]] |= {whole[source] for source in sources} - {whole[node]}
    order = {name: place for place, name in enumerate(TopologicalSorter(reads).static_order())}  # raises on a cycle
    assert len(order) == len(set(whole))
    before: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for name in sorted(order, key=order.__getitem__):
        before[name] = set().union(*({source} | before[source] for source in reads[name]))
    for number in range(len(segments)):
        later = {("segment", other) for other in range(number + 1, len(segments))}
        assert not before["segment", number] & later


@given(st.integers(1, 30))
def test_a_chain_without_other_nodes_is_one_segment(length: int):
    feeds = [{node - 1} if node else set() for node in range(length)]
    assert partition(feeds, ["tokens"] * length) == [list(range(length))]


def test_what_does_not_depend_on_a_node_between_comes_as_early_as_it_can():
    #     0 -> attention 1 -> 4, and 2 -> 3 -> 4 beside them
    feeds = [set(), {0}, set(), {2}, {1, 3}]
    assert partition(feeds, ["tokens", None, "tokens", "tokens", "tokens"]) == [[0, 2, 3], [4]]
