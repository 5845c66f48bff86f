"""What this machine can do at best, measured: the scale that `bench` and `doctor` hold figures against."""

import ctypes
from enum import IntEnum
from pathlib import Path

from ....plugins.cpu.isa import Isa
from ....quantization.scheme import WeightType
from .toolchain import compile_source

_SOURCE = Path(__file__).with_suffix(".cpp")


class Instruction(IntEnum):
    """Kinds of multiply-add, numbered as `es_peak` in ceilings.cpp counts them."""

    FP32_FMA = 0
    INT16_MADD = 1
    INT8_MADDUBS = 2
    INT8_VNNI = 3
    BF16_DOT = 4
    AMX_INT8 = 5
    AMX_BF16 = 6

    @property
    def title(self) -> str:
        return {
            Instruction.FP32_FMA: "fp32 multiply-add",
            Instruction.INT16_MADD: "int16 vpmaddwd",
            Instruction.INT8_MADDUBS: "int8 vpmaddubsw",
            Instruction.INT8_VNNI: "int8 AVX-512 VNNI",
            Instruction.BF16_DOT: "bf16 AVX-512",
            Instruction.AMX_INT8: "int8 AMX",
            Instruction.AMX_BF16: "bf16 AMX",
        }[self]


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


class Ceilings:
    """Measures on every call, which takes a tenth of a second to a second, and answers with the best reading so far.

    A ceiling is what the machine can do undisturbed: neighbours only ever lower a reading.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.es_read_bandwidth.argtypes = [ctypes.c_int64, ctypes.c_int]
        self._library.es_read_bandwidth.restype = ctypes.c_double
        self._library.es_peak.argtypes = [ctypes.c_int, ctypes.c_int]
        self._library.es_peak.restype = ctypes.c_double
        self._readings: dict[tuple[object, ...], float] = {}

    def read_bandwidth(self, num_bytes: int, threads: int) -> float:
        """Bytes per second read from a buffer of that size; 0 where memory is short."""
        return self._best(("read", num_bytes, threads), self._library.es_read_bandwidth(num_bytes, threads))

    def peak(self, instruction: Instruction, threads: int) -> float:
        """Operations per second (a multiply-add is two); 0 where the instruction is missing."""
        return self._best((instruction, threads), self._library.es_peak(int(instruction), threads))

    def _best(self, what: tuple[object, ...], reading: float) -> float:
        self._readings[what] = max(reading, self._readings.get(what, 0.0))
        return self._readings[what]


def measure_ceilings(isa: Isa) -> Ceilings:
    """Compile the probe for `isa`, which this machine must have. Raises ToolchainError without a C++ compiler."""
    return Ceilings(compile_source(_SOURCE.read_text(encoding="utf-8"), isa))
