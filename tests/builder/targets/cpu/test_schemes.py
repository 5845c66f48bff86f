"""Which scheme the options of a build give to linear layers and to the head."""

import pytest

from enginesmith.builder.config import BuildConfig
from enginesmith.builder.targets.cpu.schemes import scheme_of_head, scheme_of_linear


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
    assert str(scheme_of_linear(BuildConfig(**options), 576)) == scheme


@pytest.mark.parametrize(
    ("options", "scheme"),
    [
        ({"weights": "int8", "group_size": 10**9}, "int8-g90"),
        ({"weights": "int4", "group_size": 10**9}, "int4-g90-zeros"),
        ({"weights": "int4"}, "int4-g64-zeros"),
        ({"weights": "int8"}, "int8"),
        ({"weights": "fp8", "group_size": 128}, "fp8-g128"),  # an error later: groups larger than K
    ],
)
def test_groups_of_integers_are_at_most_all_inputs(options: dict, scheme: str) -> None:
    """Inputs keep fewer bits, and kernels take more memory, in larger groups."""
    assert str(scheme_of_linear(BuildConfig(**options), 90)) == scheme


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
    ],
)
def test_the_head_is_int8_in_groups_or_plain(options: dict, others_quantized: bool, scheme: str) -> None:
    assert str(scheme_of_head(BuildConfig(**options), others_quantized=others_quantized)) == scheme
