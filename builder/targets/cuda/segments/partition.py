"""Which operations of a network form segments: the largest groups that one TensorRT engine can compute at once."""

from collections.abc import Collection, Hashable, Sequence


def partition(feeds: Sequence[Collection[int]], kinds: Sequence[Hashable | None]) -> list[list[int]]:
    """Segments of the nodes 0, 1, ... of a graph in topological order; in an order in which they can run.

    `feeds[i]`: the nodes whose results node i reads, all before it. `kinds[i]`: None for a node that no segment may
    hold; nodes of different kinds are never together, and never read each other's results.

    Every node of a kind is in one segment. Nodes get the lowest stage that is not below those they read: even for
    segments, odd for the others. So a segment is all nodes of a kind that need the same number of changes between
    segments and other nodes before them, and what it reads comes from earlier stages.
    """
    stages: list[int] = []
    segments: dict[tuple[int, Hashable], list[int]] = {}
    for node, kind in enumerate(kinds):
        stage = max((stages[source] for source in feeds[node]), default=0)
        stages.append(stage + (stage % 2 != (kind is None)))
        if kind is not None:
            segments.setdefault((stages[node], kind), []).append(node)
    return [segments[key] for key in sorted(segments, key=lambda key: key[0])]
