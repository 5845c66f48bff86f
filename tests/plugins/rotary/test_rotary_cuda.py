"""The rotary kernel in Triton against NumPy, for every style, partial rotation, odd sizes, and in place."""

import numpy as np
import pytest
import torch
from triton_interpreter import interpret

from enginesmith.plugins.rotary.cuda.rotary import rotary_kernel
from enginesmith.plugins.rotary.reference import RotaryStyle, rotary

SHAPES = [(3, 64, 64, 1), (2, 80, 32, 1), (1, 10, 6, 2), (5, 34, 34, 1), (2, 64, 64, 2)]  # H, D, R, cos_stride


def rotate(x, cos, sin, y, style, rotary_dim, cos_stride):
    tokens, heads, width = x.shape
    interpret(
        rotary_kernel,
        (tokens,),
        *(x, cos, sin, y),
        IN_PAIRS=style is not RotaryStyle.NEOX,
        OUT_PAIRS=style is RotaryStyle.GPTJ,
        HEADS=heads,
        WIDTH=width,
        ROTARY_DIM=rotary_dim,
        COPIES=y.data_ptr() != x.data_ptr() and rotary_dim < width,
        X_TOKEN=x.stride(0),
        X_HEAD=x.stride(1),
        COS_TOKEN=cos.stride(0),
        SIN_TOKEN=sin.stride(0),
        ANGLE=cos_stride,
        Y_TOKEN=y.stride(0),
        Y_HEAD=y.stride(1),
        BLOCK_HEADS=1 << (heads - 1).bit_length(),
        BLOCK_PAIRS=1 << (rotary_dim // 2 - 1).bit_length(),
        BLOCK_REST=1 << max(width - rotary_dim - 1, 0).bit_length(),
    )


@pytest.mark.parametrize("style", RotaryStyle)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_matches_the_reference_and_works_in_place(style: RotaryStyle, shape: tuple[int, int, int, int]) -> None:
    heads, width, rotary_dim, stride = shape
    rng = np.random.default_rng(width)
    x = torch.from_numpy(rng.standard_normal((4, heads + 2, width)).astype(np.float32))[:, 1:-1]
    angles = rng.uniform(-3, 3, (4, rotary_dim // 2 * stride + 1))
    cos, sin = (torch.from_numpy(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    y = torch.full((4, heads, width), float("nan"))
    rotate(x, cos, sin, y, style, rotary_dim, stride)
    tables = [table.double().numpy()[:, None] for table in (cos, sin)]
    expected = rotary(x.double().numpy(), *tables, style=style, rotary_dim=rotary_dim, cos_stride=stride)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    if style is not RotaryStyle.GPTJ_TO_NEOX:
        rotate(x, cos, sin, x, style, rotary_dim, stride)
        assert torch.equal(x, y)
