"""What the manifest of a CPU engine says of its target."""

from dataclasses import dataclass

from ...errors import EngineError
from ..manifest import Manifest, Target


@dataclass(frozen=True, kw_only=True)
class CpuFacts(Target):
    """`cpu_flags`: what /proc/cpuinfo must list. `library`, `sampler`: names in `files`. `abi_version`: of the
    library's C interface. `arena_bytes`: of memory for activations.
    """

    isa: str
    cpu_flags: tuple[str, ...]
    library: str
    sampler: str
    abi_version: int
    arena_bytes: int

    def files(self) -> tuple[str, ...]:
        return (*super().files(), self.library, self.sampler)


def cpu_facts(manifest: Manifest) -> CpuFacts:
    """The CPU's part of a manifest. Raises EngineError for an engine of another target."""
    if not isinstance(manifest.target, CpuFacts):
        raise EngineError(f"an engine for target {manifest.target.name!r} does not run on the CPU")
    return manifest.target
