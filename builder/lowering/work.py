"""What running an engine takes at least: the bytes and operations that measured speeds are held against."""

from dataclasses import dataclass

from .dims import Symbol
from .program import AttentionCall, GatedMlpCall, LinearCall, Program


@dataclass(frozen=True)
class Work:
    """Bytes of weights that every step reads, and operations (a multiply-add is two).

    `token_ops`: linear layers, for each token of a step; `logits_ops`: the head, for each row of logits;
    `attention_ops`: attention of all layers, for each pair of a query token and a token it sees (windows disregarded).
    Embedding tables count nothing: a step reads a row for each token.
    """

    linear_bytes: int
    token_ops: int
    logits_ops: int
    attention_ops: int


def work_of(program: Program) -> Work:
    """The work of one step of a lowered network."""
    token_ops = logits_ops = 0
    for call in program.calls:
        if isinstance(call, LinearCall | GatedMlpCall):
            ops = 2 * call.weight.n * call.weight.k * len(call.weight.sources) * call.rows.count
            if call.rows.symbol is Symbol.ROWS:
                logits_ops += ops
            else:
                token_ops += ops
    layers = {layer.index: layer for layer in program.layers}
    attended = [layers[call.layer] for call in program.calls if isinstance(call, AttentionCall)]
    return Work(
        linear_bytes=sum(weight.nbytes for weight in program.linear_weights),
        token_ops=token_ops,
        logits_ops=logits_ops,
        attention_ops=sum(2 * layer.heads * (layer.k_dim + layer.v_dim) for layer in attended),
    )
