"""What a matrix kernel does to its sums before it stores them."""

import triton
import triton.language as tl

from ...cuda.elementary import gelu, gelu_tanh, sigmoid, tanh


@triton.jit
def activate(x, FUNCTION: tl.constexpr):
    """One of ActivationFunction, by its value, of float32."""
    if FUNCTION == "gelu":
        x = gelu(x)
    elif FUNCTION == "gelu_tanh":
        x = gelu_tanh(x)
    elif FUNCTION == "silu":
        x = x * sigmoid(x)
    elif FUNCTION == "relu":
        x = tl.maximum(x, 0.0)
    elif FUNCTION == "relu2":
        x = tl.maximum(x, 0.0)
        x = x * x
    elif FUNCTION == "quick_gelu":
        x = x * sigmoid(x * 1.702)
    elif FUNCTION == "tanh":
        x = tanh(x)
    elif FUNCTION == "sigmoid":
        x = sigmoid(x)
    return x


@triton.jit
def scaled(sums, channel_scales, bias, output, N: tl.constexpr, INPUT_SCALE: tl.constexpr):
    """sums [outputs, rows] times scales of whole outputs and of static inputs, plus the bias; output [outputs, 1]."""
    if channel_scales is not None:
        sums *= tl.load(channel_scales + output, mask=output < N, other=0.0) * INPUT_SCALE
    elif INPUT_SCALE != 1.0:
        sums *= INPUT_SCALE
    if bias is not None:
        sums += tl.load(bias + output, mask=output < N, other=0.0).to(tl.float32)
    return sums


@triton.jit
def finish(
    sums,
    up_sums,
    channel_scales,
    up_channel_scales,
    bias,
    up_bias,
    residual,
    y,
    output,
    row,
    rows,
    N: tl.constexpr,
    Y_ROW: tl.constexpr,
    RESIDUAL_ROW: tl.constexpr,
    INPUT_SCALE: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Stores act(sums + bias), times the second matrix's sums if there is one, plus the residual.

    sums [outputs, rows] of output [outputs, 1] and row [1, rows], of which those below `rows` exist.
    """
    mask = (output < N) & (row < rows)
    wide_row = row.to(tl.int64)
    values = activate(scaled(sums, channel_scales, bias, output, N, INPUT_SCALE), ACTIVATION)
    if up_sums is not None:
        values *= scaled(up_sums, up_channel_scales, up_bias, output, N, INPUT_SCALE)
    if residual is not None:
        values += tl.load(residual + wide_row * RESIDUAL_ROW + output, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + wide_row * Y_ROW + output, values, mask=mask)
