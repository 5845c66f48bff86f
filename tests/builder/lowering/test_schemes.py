"""Which scheme the options of a build give to linear layers and to the head."""

import pytest

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.schemes import scheme_of_head, scheme_of_linear
from enginesmith.errors import BuildError


@pytest.mark.parametrize(
    ("options", "scheme"),
    [
        ({}, "bf16"),
        ({"dtype": "fp32"}, "fp32"),
        ({"weights": "fp8"}, "fp8"),
        ({"weights": "fp8", "group_size": 128}, "fp8-g128"),
        ({"weights": "int8"}, "int8"),
        ({"weights": "int4"}, "int4-g64-zeros"),
        ({"weights": "int4", "group_size": 32}, "int4-g32-zeros"),
    ],
)
def test_linear_layers(options: dict, scheme: str) -> None:
    assert str(scheme_of_linear(BuildConfig(**options), "w", 576)) == scheme


@pytest.mark.parametrize("weights", ["int8", "int4", "fp8"])
def test_a_group_is_at_most_all_inputs(weights: str) -> None:
    config = BuildConfig.model_validate({"weights": weights, "group_size": 96})
    assert scheme_of_linear(config, "w", 96).group_size == 96
    with pytest.raises(BuildError, match="--group-size 96 is larger than the 95 inputs of w; choose one of at most 95"):
        scheme_of_linear(config, "w", 95)


@pytest.mark.parametrize(
    ("options", "others_quantized", "scheme"),
    [
        ({}, False, "bf16"),
        ({}, True, "int8-g64"),
        ({"weights": "fp8"}, False, "int8-g64"),
        ({"weights": "int8", "group_size": 32}, False, "int8-g64"),
        ({"weights": "int4", "head": "plain", "dtype": "fp32"}, False, "fp32"),
        ({"head": "plain"}, True, "bf16"),
        ({"head": "int8"}, False, "int8-g64"),
        ({"head": "int4", "dtype": "fp32"}, False, "int4-g32-zeros"),
        ({"head": "int4", "weights": "int8"}, False, "int4-g32-zeros"),
        ({"head": "int4"}, True, "int4-g32-zeros"),
    ],
)
def test_the_head(options: dict, others_quantized: bool, scheme: str) -> None:
    assert str(scheme_of_head(BuildConfig(**options), others_quantized=others_quantized)) == scheme
