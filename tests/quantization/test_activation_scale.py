import numpy as np
import pytest
from correlated import inputs, observed

from enginesmith.quantization.activation_scale import static_activation_scale
from enginesmith.quantization.scheme import WeightType
from enginesmith.quantization.statistics import InputStatistics


@pytest.mark.parametrize(("type_", "end"), [(WeightType.INT8, 127), (WeightType.FP8, 448)])
def test_the_largest_input_is_the_largest_value(type_: WeightType, end: int) -> None:
    x = inputs(50, 16)
    scale = static_activation_scale(observed(x), type_)
    assert np.abs(x).max() / scale == pytest.approx(end, rel=1e-6)
    assert scale == np.float32(scale)


@pytest.mark.parametrize("largest", [0, 1e-45])
def test_the_scale_is_positive(largest: float) -> None:
    statistics = InputStatistics.empty(4)
    statistics.add(np.full((3, 4), largest, np.float32))
    assert static_activation_scale(statistics, WeightType.INT8) == 1


def test_only_eight_bits() -> None:
    with pytest.raises(ValueError, match="int4"):
        static_activation_scale(InputStatistics.empty(4), WeightType.INT4)
