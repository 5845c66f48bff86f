"""What the builder asks of a target."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ...measure.ceilings import Ceilings
from ...progress import Progress
from ...quantization.scheme import WeightType
from ...runtime.manifest import Manifest
from ...runtime.manifest import Target as TargetFacts
from ..build_options import BuildConfig

if TYPE_CHECKING:  # which need onnx_ir: a target is also asked for its ceilings, where nothing is built
    from ...checkpoint.layouts.kv_cache import KvScales
    from ..lowering.program import Program, Tactic
    from ..lowering.stored_rows import Stored
    from ..network import Network
    from ..passes.derived import Read

WEIGHTS = "weights.bin"


class Compilation(Protocol):
    """A compilation under way, or one that the cache had."""

    @property
    def cached(self) -> bool: ...

    def wait(self) -> None:
        """Put what was compiled into the engine's folder. Raises ToolchainError if the compiler refused."""
        ...

    def cancel(self) -> None:
        """Stop, if it still runs."""
        ...


@dataclass(frozen=True)
class Plan(ABC):
    """Everything about an engine but the values of its weights."""

    program: "Program"
    config: BuildConfig
    max_seq_len: int

    @property
    def scheme(self) -> WeightType:
        """The engine's weight type: the smallest taken over from a quantized checkpoint, else the one asked for."""
        return self.stored_type or WeightType(self.config.weights or self.config.dtype)

    @property
    def stored_type(self) -> WeightType | None:
        """The type of fewest bits among weights taken over from a quantized checkpoint."""
        types = [weight.scheme.weight.type for weight in self.program.linear_weights if weight.stored]
        return min(types, key=lambda type_: type_.bits, default=None)

    @abstractmethod
    def start_compiling(self, folder: Path) -> Compilation:
        """Begin to compile for the engine's folder, in a process of its own."""

    @abstractmethod
    def pack(self, folder: Path, read: "Read", progress: Progress) -> None:
        """Write WEIGHTS into the engine's folder. `read(parameter)` gives a weight."""

    @abstractmethod
    def tactics(self) -> "list[Tactic]":
        """The kernels of fused operations that come in several variants."""

    def notes(self) -> list[str]:
        """What the report says of the target's part, once it is compiled and packed."""
        return []

    @property
    def max_logits_rows(self) -> int:
        """Rows of logits that a step may keep."""
        return self.config.max_batch_size

    @abstractmethod
    def facts(self) -> TargetFacts:
        """What the manifest tells of the target."""


class Host(Protocol):
    """This machine, found able to build for a target. `title`: what for; `compiler`: what compiles."""

    @property
    def title(self) -> str: ...

    @property
    def compiler(self) -> str: ...

    def plan(
        self,
        network: "Network",
        config: BuildConfig,
        max_seq_len: int,
        stored: "Stored | None" = None,
        kv_scales: "Mapping[str, KvScales] | None" = None,
    ) -> Plan:
        """Lower `network` and give every buffer and weight its place; raises what `lowering.lower` raises."""
        ...


@dataclass(frozen=True)
class Finding:
    """A fact about this machine, whether it is well, and otherwise what to do. `needed_to`: what it stops if not."""

    name: str
    value: str
    ok: bool = True
    advice: str = ""
    needed_to: Literal["run", "build"] | None = None


class Target(Protocol):
    """A kind of machine that engines run on."""

    def check_host(self, options: Any, *, runs_here: bool) -> Host:
        """Find what building takes, before minutes go by; `runs_here`: this machine will run the engine, to check it.

        Raises BuildError where it cannot, and ToolchainError without a compiler.
        """
        ...

    def machine(self) -> str:
        """What this machine is to the target: an engine built for "native" is another one where this differs."""
        ...

    def findings(self) -> Iterable[Finding]:
        """What this machine has of what the target's engines need to run and to be built; nothing is measured."""
        ...

    def ceilings(self, engine: Manifest | None = None) -> Ceilings:
        """What this machine can do at best; of the instructions that `engine` was built for, else of all it has.

        Raises ToolchainError where a probe must be compiled, and there is no compiler; BuildError where the target does
        not run here.
        """
        ...
