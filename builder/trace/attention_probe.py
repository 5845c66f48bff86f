"""What a piece of a program computes as attention: its scale, softcap, mask and slopes, found by running it.

Scores must be scale * q k^T, capped or not, plus a bias that falls with the distance of a key, a number of its own for
each head (ALiBi; Press et al., 2022). Keys that a query does not see must be far below all others.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from ...errors import UnsupportedModelError
from .masks import MaskSpec
from .position_values import PositionValues

_TOKENS = 23
_MAX_SCORES = 1 << 27  # that are computed at once
_HIDDEN = 5e3  # how far below that of its own key the score of a hidden one lies
_BFLOAT16 = 2.0**-8  # the rounding of a bias that a model computes in bfloat16


@dataclass(frozen=True)
class SpelledOut:
    """The nodes of one attention: `product` is q k^T, `scores` what softmax takes, `output` is softmax(scores) v."""

    product: Node
    scores: Node
    output: Node

    @property
    def operands(self) -> tuple[Node, Node, Node]:
        """q [.., T, D], k [.., D, T], v [.., T, Dv]."""
        *_, q, k = self.product.args[:3]
        return q, k, self.output.args[1]  # type: ignore[return-value]


@dataclass(frozen=True)
class Probed:
    """The arguments of the attention operation. `slopes` has a number for each head, or none."""

    scale: float
    softcap: float
    mask: MaskSpec
    slopes: tuple[float, ...]


def probe(program: torch.export.ExportedProgram, found: SpelledOut, max_seq_len: int) -> Probed:
    """What `found` computes for sequences of up to `max_seq_len` tokens. Raises UnsupportedModelError if the attention
    operation cannot."""
    piece = _Piece(program, found, _TOKENS)
    bias, hidden = piece.bias()
    mask, tokens = _mask(hidden), min(piece.telling_length(), max_seq_len)
    if tokens > _TOKENS:
        mask = _mask(_longer(program, found, tokens, len(bias)).bias()[1])
    slopes = _slopes(bias, hidden)
    scale, softcap = piece.scale_and_softcap(bias, hidden)
    probed = Probed(scale, softcap, mask, slopes)
    piece.verify(probed)
    return probed


def _longer(program: torch.export.ExportedProgram, found: SpelledOut, tokens: int, heads: int) -> "_Piece":
    """A sequence in which a window or a chunk of up to `tokens` tokens shows."""
    if tokens**2 * heads > _MAX_SCORES:
        raise UnsupportedModelError(f"a model's own attention mask with numbers up to {tokens} is not supported")
    return _Piece(program, found, tokens)


class _Piece:
    """The nodes of one attention, run on a sequence of `tokens` tokens."""

    def __init__(self, program: torch.export.ExportedProgram, found: SpelledOut, tokens: int) -> None:
        self._found = found
        self._tokens = tokens
        self._values = PositionValues(program, torch.arange(tokens))
        generator = torch.Generator().manual_seed(0)
        self._operands = [torch.randn(self._values.sizes(node), generator=generator) for node in found.operands]

    def _run(self, factor: float) -> tuple[Tensor, Tensor]:
        """Scores [H, T, T] and output [H, T, Dv], of queries times `factor`."""
        q, k, v = self._operands
        given = dict(zip(self._found.operands, (q * factor, k, v), strict=True))
        computed = self._values.compute((self._found.scores, self._found.output), given)
        scores, output = computed[self._found.scores], computed[self._found.output]
        return scores.reshape(-1, *scores.shape[-2:]).double(), output.reshape(-1, *output.shape[-2:])

    def _products(self) -> Tensor:
        q, k, _ = self._operands
        product = q.double() @ k.double()
        return product.reshape(-1, *product.shape[-2:])

    def bias(self) -> tuple[Tensor, Tensor]:
        """What is added to scores, less that of a query's own key, and which keys are hidden; both [H, T, T]."""
        scores, _ = self._run(0.0)
        bias = scores - scores.diagonal(dim1=1, dim2=2)[..., None]
        return bias, ~(bias > -_HIDDEN)

    def scale_and_softcap(self, bias: Tensor, hidden: Tensor) -> tuple[float, float]:
        """By the scores of small queries, and of large ones."""
        products = self._products()[~hidden]
        small, large = (self._run(factor)[0] - self._run(0.0)[0] for factor in (1e-2, 1e3))
        scale = float((small[~hidden] * products).sum() / (1e-2 * products.square().sum()))
        usual = (1.0, self._operands[0].shape[-1] ** -0.5)
        scale = next((number for number in usual if math.isclose(scale, number, rel_tol=1e-5)), scale)
        capped = float(large[~hidden].abs().max())
        return scale, capped if capped < 0.5 * float((1e3 * scale * products).abs().max()) else 0.0

    def verify(self, probed: Probed) -> None:
        """Compare the attention of random queries with the formula."""
        q, k, v = (x.double() for x in self._operands)
        products = q @ k * probed.scale
        if probed.softcap:
            products = probed.softcap * torch.tanh(products / probed.softcap)
        if probed.slopes:
            distance = torch.arange(self._tokens)[:, None] - torch.arange(self._tokens)
            products = products - torch.tensor(probed.slopes)[:, None, None] * distance
        visible = probed.mask.visible(self._tokens, self._tokens)
        expected = products.masked_fill(~visible, -torch.inf).softmax(-1) @ v
        _, output = self._run(1.0)
        tolerance = 1e-2 if probed.slopes else 1e-4
        if not torch.allclose(expected.reshape(output.shape).float(), output, atol=tolerance):
            raise UnsupportedModelError("a model's own attention computes something else than attention")

    def telling_length(self) -> int:
        """So many tokens show every window and every chunk of the mask: more than any whole number that is computed
        with, and no more than the model's own masks have."""
        nodes = self._values.between([self._found.output], self._found.operands)
        tables = [self._values.sizes(node) for node in nodes if node.op == "placeholder"]
        squares = [min(sizes[-2:]) for sizes in tables if len(sizes) > 1]
        return min([*squares, max((2 + _largest_number(node) for node in nodes), default=0)])


def _largest_number(node: Node) -> int:
    """The largest whole number that a node computes with, save sizes of tables."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return 0
    whole = [x for x in (*node.args, *node.kwargs.values()) if type(x) is int and abs(x) < 1 << 31]
    largest = max(map(abs, whole), default=0)
    is_table = all(isinstance(size, int) for size in value.shape)
    return 0 if is_table and (largest in value.shape or largest + 1 in value.shape) else largest


def _mask(hidden: Tensor) -> MaskSpec:
    """The mask that hides the keys hidden [H, T, T]."""
    tokens = hidden.shape[-1]
    last, ranges = hidden[0, -1], (~hidden[0]).int()
    if not bool((hidden == hidden[0]).all()):
        raise UnsupportedModelError("attention masks that differ between heads are not supported")
    oldest = int(ranges[-1].argmax())
    window = tokens - oldest if bool(last[:-1].any()) else 0
    first_lost = hidden[0, :, 0].int()
    chunk = int(first_lost.argmax()) if bool(first_lost.any()) else 0
    causal = bool(hidden[0, 0, 1:].all())
    for spec in (MaskSpec(causal), MaskSpec(causal, window), MaskSpec(causal, chunk=chunk)):
        if torch.equal(spec.visible(tokens, tokens), ~hidden[0]):
            return spec
    raise UnsupportedModelError("a model's own attention mask is neither causal, nor a window, nor chunks")


def _slopes(bias: Tensor, hidden: Tensor) -> tuple[float, ...]:
    """By how much the bias of each head falls with every token of distance; none where there is no bias."""
    tokens = bias.shape[-1]
    distance = (torch.arange(tokens)[:, None] - torch.arange(tokens)).double()
    slopes = -bias[:, 1, 0]
    fitted = -slopes[:, None, None] * distance
    wrong = (bias - fitted).abs() > 1e-4 + _BFLOAT16 * torch.arange(tokens)[:, None] * slopes.abs()[:, None, None]
    if bool((wrong & ~hidden).any()):
        raise UnsupportedModelError("attention with a bias that does not fall evenly with the distance of a key")
    return tuple(slopes.tolist()) if bool(slopes.any()) else ()
