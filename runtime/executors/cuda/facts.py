"""What the manifest of a cuda engine says of its target."""

from dataclasses import dataclass

from ....errors import EngineError
from ...manifest import Manifest, Target


@dataclass(frozen=True, kw_only=True)
class CudaFacts(Target):
    """`sm`: the compute capability that the cubins are for, 90 for 9.0. `launches`: the table of launches, beside whose
    file lie the `cubins`. `sampler`: the library that draws tokens on the host. `arena_bytes`: device memory for
    activations. `compiler`: what made the cubins.

    `cuda`: the CUDA whose assembler made them, 13000 for 13.0: a driver must know its major version.
    `batch_invariant`: whether a row's results are the same whoever shares its batch.
    `tensorrt`: what made the `plans` of segments, "package version"; `plans_bytes`: device memory that they may take
    for weights and activations.
    """

    sm: int
    launches: str
    cubins: tuple[str, ...]
    sampler: str
    arena_bytes: int
    compiler: str
    cuda: int
    batch_invariant: bool
    tensorrt: str = ""
    plans: tuple[str, ...] = ()
    plans_bytes: int = 0

    def files(self) -> tuple[str, ...]:
        return (*super().files(), self.launches, *self.cubins, *self.plans, self.sampler)


def cuda_facts(manifest: Manifest) -> CudaFacts:
    """The GPU's part of a manifest. Raises EngineError for an engine of another target."""
    if not isinstance(manifest.target, CudaFacts):
        raise EngineError(f"an engine for target {manifest.target.name!r} does not run on an NVIDIA GPU")
    return manifest.target
