"""The instruction sets the CPU target knows, what each needs of a machine, and how a compiler is told."""

from enum import StrEnum
from functools import cache
from pathlib import Path


class Isa(StrEnum):
    """A level of x86-64 vector instructions; each includes those before it."""

    AVX2 = "avx2"
    AVX512 = "avx512"
    AMX = "amx"

    @property
    def cpu_flags(self) -> frozenset[str]:
        """The names, as /proc/cpuinfo spells them, that a machine must list."""
        flags = {"avx2", "fma", "f16c"}
        if self is not Isa.AVX2:
            flags |= {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16"}
        if self is Isa.AMX:
            flags |= {"amx_tile", "amx_int8", "amx_bf16"}
        return frozenset(flags)

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """Options for g++ and clang++ alike; kernels see __AVX2__, __AVX512VNNI__, __AMX_INT8__ and so on."""
        names = (flag.replace("avx512_", "avx512").replace("amx_", "amx-") for flag in sorted(self.cpu_flags))
        return tuple(f"-m{name}" for name in names)


@cache
def machine_flags() -> frozenset[str]:
    """The instruction sets this machine lists in /proc/cpuinfo; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def native_isa() -> Isa | None:
    """The best instruction set of this machine, or None where even AVX2 is missing."""
    return max((isa for isa in Isa if isa.cpu_flags <= machine_flags()), key=list(Isa).index, default=None)
