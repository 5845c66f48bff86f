"""The ceilings of a CPU, measured by a small C++ probe; see `measure/ceilings.py`."""

import ctypes
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from ....plugins.cpu.isa import Isa
from ....quantization.scheme import WeightType
from .toolchain import compile_source

_SOURCE = Path(__file__).with_suffix(".cpp")


class Instruction(StrEnum):
    """Kinds of multiply-add, in the order in which `es_peak` in ceilings.cpp counts them."""

    FP32_FMA = "fp32 multiply-add"
    INT16_MADD = "int16 vpmaddwd"
    INT8_MADDUBS = "int8 vpmaddubsw"
    INT8_VNNI = "int8 AVX-512 VNNI"
    BF16_DOT = "bf16 AVX-512"
    AMX_INT8 = "int8 AMX"
    AMX_BF16 = "bf16 AMX"


def used_instruction(weights: WeightType, isa: Isa) -> Instruction:
    """The multiply-add that linear layers of that type run on."""
    match weights, isa:
        case (WeightType.FP32, _) | (WeightType.BF16, Isa.AVX2):
            return Instruction.FP32_FMA
        case WeightType.INT8, Isa.AVX2:
            return Instruction.INT16_MADD
        case WeightType.INT4, Isa.AVX2:
            return Instruction.INT8_MADDUBS
        case WeightType.BF16, Isa.AVX512:
            return Instruction.BF16_DOT
        case WeightType.BF16, _:
            return Instruction.AMX_BF16
        case _, Isa.AVX512:
            return Instruction.INT8_VNNI
        case _:
            return Instruction.AMX_INT8


class CpuCeilings:
    """What engines for `isa` can reach on this machine. Raises ToolchainError without a C++ compiler."""

    instructions: Sequence[str] = tuple(Instruction)

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._library = ctypes.CDLL(str(compile_source(_SOURCE.read_text(encoding="utf-8"), isa)))
        self._library.es_read_bandwidth.argtypes = [ctypes.c_int64, ctypes.c_int]
        self._library.es_read_bandwidth.restype = ctypes.c_double
        self._library.es_peak.argtypes = [ctypes.c_int, ctypes.c_int]
        self._library.es_peak.restype = ctypes.c_double
        self._readings: dict[tuple[object, ...], float] = {}

    def instruction_of(self, weights: WeightType) -> Instruction:
        return used_instruction(weights, self._isa)

    def read_bandwidth(self, num_bytes: int, threads: int) -> float:
        return self._best(("read", num_bytes, threads), self._library.es_read_bandwidth(num_bytes, threads))

    def peak(self, instruction: str, threads: int) -> float:
        number = self.instructions.index(instruction)
        return self._best((instruction, threads), self._library.es_peak(number, threads))

    def _best(self, what: tuple[object, ...], reading: float) -> float:
        self._readings[what] = max(reading, self._readings.get(what, 0.0))
        return self._readings[what]
