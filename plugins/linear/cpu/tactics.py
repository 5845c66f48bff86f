"""Which kernel variant runs for how many rows; plugins/linear/cpu decides the same, and this says it in words."""

from ....quantization.scheme import ActivationScheme, WeightType
from ...cpu.isa import Isa

_AVX2 = {
    WeightType.FP32: {
        "1-2": "FMA, whole panel in registers",
        "3-6": "FMA, half panel in registers",
        "7-": "FMA 6x16 tiles, K in blocks of 256",
    },
    WeightType.BF16: {
        "1-2": "FMA, whole panel in registers, widened there",
        "3-18": "FMA 6x16 tiles, widened in registers",
        "19-": "FMA 6x16 tiles, K in blocks of 256 widened once a row block",
    },
    WeightType.FP8: {
        "1-2": "FMA, whole panel in registers, widened there",
        "3-": "FMA 6x16 tiles, K in blocks of 256 widened once a row block",
    },
    WeightType.INT8: {
        "1-2": "16-bit multiply-add, whole panel in registers",
        "3-12": "16-bit multiply-add 6x16 tiles, widened in registers",
        "13-": "16-bit multiply-add 6x16 tiles, groups widened once a row block",
    },
    WeightType.INT4: {
        "1": "8-bit multiply-add, whole panel in registers",
        "2-4": "8-bit multiply-add 4x16 tiles, unpacked in registers",
        "5-": "8-bit multiply-add 6x16 tiles, groups unpacked once a row block",
    },
}
_AVX512 = {
    WeightType.FP32: {"1-": "FMA 6x32 tiles"},
    WeightType.BF16: {"1-": "VDPBF16PS 6x32 tiles"},
    WeightType.FP8: {
        "1-2": "VDPBF16PS, whole panel in registers, widened there",
        "3-": "VDPBF16PS 6x32 tiles, K in blocks of 256 widened once a row block",
    },
    WeightType.INT8: {"1-": "VPDPBUSD 6x32 tiles"},
    WeightType.INT4: {"1-": "VPDPBUSD 6x32 tiles, unpacked in registers"},
}
_AMX = {
    WeightType.FP32: _AVX512[WeightType.FP32],
    WeightType.BF16: {"1-": "TDPBF16PS 32x32 tiles"},
    WeightType.FP8: {"1-": "TDPBF16PS 32x32 tiles, K in blocks of 256 widened once a row block"},
    WeightType.INT8: {"1-2": "VPDPBUSD 6x32 tiles", "3-": "TDPBSUD 32x32 tiles"},
    WeightType.INT4: {
        "1-6": "VPDPBUSD 6x32 tiles, unpacked in registers",
        "7-": "TDPBSUD 32x32 tiles, groups unpacked once a row block",
    },
}
_INT8_OF_TWO_BYTES = {
    Isa.AVX512: {"1-": "VPDPBUSD 4x32 tiles of inputs of two bytes"},
    Isa.AMX: {
        "1-2": "VPDPBUSD 4x32 tiles of inputs of two bytes",
        "3-": "TDPBSUD 16x32 tiles of inputs of two bytes",
    },
}
_TACTICS = {Isa.AVX2: _AVX2, Isa.AVX512: _AVX512, Isa.AMX: _AMX}


def tactics(weight_type: WeightType, isa: Isa, activation: ActivationScheme) -> dict[str, str]:
    """Ranges of rows ("3-6", "7-") to a description of the kernel variant."""
    if weight_type is WeightType.INT8 and activation is ActivationScheme.NONE and isa is not Isa.AVX2:
        return dict(_INT8_OF_TWO_BYTES[isa])
    return dict(_TACTICS[isa][weight_type])
