"""Norms in Triton against NumPy: heads in strided views, residuals, both element types, and rows that stand alone."""

import numpy as np
import pytest
import torch
from triton_interpreter import interpret

from enginesmith.plugins.norm.cuda.norm import norm_kernel
from enginesmith.plugins.norm.reference import layer_norm, rms_norm

EPSILON = 1e-5


def norm(x, weight=None, bias=None, skip=None, *, centred=False, block_rows=2, dtype=torch.float32):
    """x [T, H, D], any of which may be strided, and skip [T, 1, D] -> y and x + skip, [T, H, D]."""
    tokens, heads, width = x.shape
    y = torch.full((tokens, heads, width), float("nan"), dtype=dtype)
    total = torch.full((tokens, heads, width), float("nan"))
    interpret(
        norm_kernel,
        (-(-tokens * heads // block_rows),),
        *(x, skip, weight, bias, y, total if skip is not None else None, tokens),
        TIMES=heads,
        EPSILON=EPSILON,
        CENTRED=centred,
        HEADS=heads,
        WIDTH=width,
        X_TOKEN=x.stride(0),
        X_HEAD=x.stride(1),
        SKIP_TOKEN=0 if skip is None else skip.stride(0),
        Y_TOKEN=y.stride(0),
        Y_HEAD=y.stride(1),
        TOTAL_TOKEN=total.stride(0),
        BLOCK=1 << (width - 1).bit_length(),
        BLOCK_ROWS=block_rows,
    )
    return y, total


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def wide(x: torch.Tensor) -> np.ndarray:
    return x.double().numpy()


@pytest.mark.parametrize("width", [1, 64, 80, 576])
@pytest.mark.parametrize("heads", [1, 3])
def test_rms_norm_matches_numpy(heads: int, width: int) -> None:
    both = random(width, 5, heads * 2, width)
    x, weight = both[:, heads:], random(1, width)
    y, _ = norm(x, weight)
    np.testing.assert_allclose(y, rms_norm(wide(x), wide(weight), epsilon=EPSILON), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("given", [(False, False), (True, False), (True, True)], ids=["bare", "weight", "bias"])
def test_layer_norm_matches_numpy(given: tuple[bool, bool]) -> None:
    x = random(2, 4, 1, 100) + 3
    weight, bias = (random(3 + i, 100) if is_given else None for i, is_given in enumerate(given))
    y, _ = norm(x, weight, bias, centred=True)
    vectors = [None if vector is None else wide(vector) for vector in (weight, bias)]
    np.testing.assert_allclose(y, layer_norm(wide(x), *vectors, epsilon=EPSILON), atol=2e-6)


@pytest.mark.parametrize("centred", [False, True], ids=["rms", "layer"])
def test_a_residual_is_added_first_and_kept(centred: bool) -> None:
    x, skip, weight = random(5, 3, 1, 48).bfloat16(), random(6, 3, 1, 48), random(7, 48)
    y, total = norm(x, weight, skip=skip, centred=centred, dtype=torch.bfloat16)
    np.testing.assert_array_equal(total, x.float() + skip)
    expected = (layer_norm if centred else rms_norm)(wide(total), wide(weight), epsilon=EPSILON)
    np.testing.assert_allclose(y.float(), expected, atol=1e-6, rtol=2**-8)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    x, weight = random(8, 7, 1, 72), random(9, 72)
    together, _ = norm(x, weight)
    for t in range(7):
        assert torch.equal(norm(x[t : t + 1], weight)[0][0], together[t])
