from hypothesis import given
from hypothesis import strategies as st

from enginesmith.measure.windows import windows


@given(st.integers(2, 60), st.integers(2, 20), st.data(), st.lists(st.just(-1), max_size=1))
def test_each_token_is_scored_once_with_enough_context(n: int, window: int, data: st.DataObject, prefix: list[int]):
    stride = data.draw(st.integers(1, window - 1))
    found = list(windows(range(n), window, stride, prefix))
    assert [token for part in found for token in part.targets] == list(range(0 if prefix else 1, n))
    assert max(len(part.targets) for part in found) <= stride
    for part in found:
        assert len(part.tokens) + 1 <= window
        assert part.tokens[: len(prefix)] == prefix
        body = part.tokens[len(prefix) :]
        first = part.targets[0]
        context = len(body) - len(part.targets) + 1
        assert body == list(range(first - context, part.targets[-1]))
        assert context >= min(first, window - stride - len(prefix))


def test_the_windows_of_a_short_text():
    found = [(part.tokens, part.targets) for part in windows([10, 11, 12, 13, 14], 4, 2)]
    assert found == [([10], [11]), ([10, 11, 12], [12, 13]), ([12, 13], [14])]
