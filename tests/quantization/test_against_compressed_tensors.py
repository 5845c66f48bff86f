"""The library that defines compressed-tensors rounds the same weights, on the same grids, to the same integers."""

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs, fake_quantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams
from correlated import weights

from enginesmith.quantization import fp8, rtn
from enginesmith.quantization.scheme import WeightScheme, WeightType

INTEGERS = [
    WeightScheme(WeightType.INT4, 32),
    WeightScheme(WeightType.INT4, 32, symmetric=False),
    WeightScheme(WeightType.INT4),
    WeightScheme(WeightType.INT8),
]


def arguments(scheme: WeightScheme) -> QuantizationArgs:
    return QuantizationArgs.model_validate(
        {
            "num_bits": scheme.type.bits,
            "type": "float" if scheme.type is WeightType.FP8 else "int",
            "symmetric": scheme.symmetric,
            "strategy": "group" if scheme.group_size else "channel",
            "group_size": scheme.group_size or None,
        }
    )


@pytest.mark.parametrize("scheme", INTEGERS, ids=str)
def test_integers_on_the_same_grid(scheme: WeightScheme) -> None:
    w = weights(40, 128)
    found = rtn.quantize(w, scheme, storable=True)
    zero = torch.from_numpy(np.zeros_like(found.scale) if found.zero is None else found.zero)
    q = quantize(torch.from_numpy(w), torch.from_numpy(found.scale), zero, arguments(scheme))
    # Ties between two integers may be broken otherwise: x / scale here, x times its inverse there.
    different = q.numpy().astype(np.int8) != found.q
    assert different.mean() < 1e-3


@pytest.mark.parametrize("scheme", INTEGERS, ids=str)
def test_no_worse_than_its_range(scheme: WeightScheme) -> None:
    w = weights(40, 128)
    groups = torch.from_numpy(w).reshape(40, -1, scheme.group_size or 128)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments(scheme))
    theirs = fake_quantize(torch.from_numpy(w), scale, zero, arguments(scheme)).numpy()
    ours = rtn.quantize(w, scheme, storable=True).dequantize(scheme.group_size)
    assert np.square(ours - w).sum() <= np.square(theirs - w).sum() * 1.0001


def test_fp8_is_equal() -> None:
    w, scheme = weights(40, 128), WeightScheme(WeightType.FP8)
    found = fp8.quantize(w, scheme)
    scale, zero = calculate_qparams(
        torch.from_numpy(w.min(axis=1, keepdims=True)),
        torch.from_numpy(w.max(axis=1, keepdims=True)),
        arguments(scheme),
    )
    np.testing.assert_allclose(found.scale, scale.numpy(), rtol=1e-6)
    theirs = fake_quantize(torch.from_numpy(w), scale, zero, arguments(scheme)).numpy()
    assert (np.abs(theirs - found.dequantize(0)) > 1e-6 * np.abs(theirs)).mean() < 1e-3
