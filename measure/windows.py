"""Sliding windows over a text: each token is scored once, with as much context as a window leaves it."""

from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_WINDOW = 512
DEFAULT_TOKENS = 16384


@dataclass(frozen=True)
class Window:
    """Tokens to give to a model, and the tokens that should follow its last `len(targets)` ones."""

    tokens: list[int]
    targets: list[int]


def windows(token_ids: Sequence[int], window: int, stride: int, prefix: Sequence[int] = ()) -> list[Window]:
    """Windows of up to `window` tokens, scored ones and `prefix` included, that move by `stride` and score as many.

    Every token has at least window - stride tokens before it, or all there are; stride must leave it one. `prefix`,
    which a tokenizer puts before a text, begins every window; without one, the first token has nothing to be predicted
    from and is not scored. The first whole window is scored in pieces: no window has more targets than `stride`.
    """
    room = window - len(prefix)
    found, first = [], 0 if prefix else 1
    for end in range(room % stride or stride, len(token_ids) + stride, stride):
        if targets := list(token_ids[first:end]):
            last = first + len(targets) - 1
            found.append(Window([*prefix, *token_ids[max(0, end - room) : last]], targets))
            first = end
    return found
