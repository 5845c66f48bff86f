"""A call of a kernel of the CPU's, as the plugins define them."""

from dataclasses import dataclass
from typing import ClassVar

from .....plugins.cpu.isa import Isa
from ....lowering.program import Call, Tactic
from .writer import Writer


@dataclass
class CpuCall(Call):
    """One call of a C++ template. `header` declares it: a path below the folder that the plugin's folder lies in."""

    header: ClassVar[str]

    def write(self, out: Writer) -> None:
        """Add the lines of the call."""
        raise NotImplementedError

    def tactic(self, isa: Isa) -> Tactic | None:
        """Which kernel the call is and what it does, for the report; None where there is nothing to choose."""
        return None
