"""What running an engine takes at least: the bytes and operations that measured speeds are held against."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Bytes of weights that every step reads, and operations (a multiply-add is two). Of a mixture of experts the bytes
    are those of one token's; a step of several may read more.

    `token_ops`: linear layers, for each token of a step; `logits_ops`: the head, for each row of logits;
    `attention_ops`: attention of all layers, for each pair of a query token and a token it sees (windows disregarded).
    Embedding tables count nothing: a step reads a row for each token.
    """

    linear_bytes: int = 0
    token_ops: int = 0
    logits_ops: int = 0
    attention_ops: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.linear_bytes + other.linear_bytes,
            self.token_ops + other.token_ops,
            self.logits_ops + other.logits_ops,
            self.attention_ops + other.attention_ops,
        )
