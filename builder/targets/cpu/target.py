"""The cpu target as the builder sees it: a network and options in; a program with addresses, and its source, out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ....checkpoint.layouts.kv_cache import KvScales
from ....errors import BuildError
from ....plugins.cpu.isa import Isa, native_isa
from ....plugins.linear.cpu.packing import layout_of_weight
from ....plugins.registry import kernels
from ....quantization.scheme import WeightType
from ...config import BuildConfig
from ...lowering.lower import lower
from ...lowering.memory_plan import plan_memory
from ...lowering.program import Program, Tactic
from ...lowering.stored_rows import Stored
from ...lowering.weights_file import plan_weights
from .emit import EngineFacts, emit
from .source.call import CpuCall

if TYPE_CHECKING:
    from ...network import Network


@dataclass(frozen=True)
class CpuPlan:
    """Everything about an engine but the values of its weights."""

    program: Program
    source: str
    isa: Isa
    config: BuildConfig
    max_seq_len: int

    @property
    def scheme(self) -> WeightType:
        """What the linear layers are stored as, all in all: what was asked for, or the least that a checkpoint has."""
        return self.stored_type or WeightType(self.config.weights or self.config.dtype)

    def tactics(self) -> list[Tactic]:
        """The kernels of fused operations that come in several variants."""
        calls = (call for call in self.program.calls if isinstance(call, CpuCall))
        return [tactic for call in calls if (tactic := call.tactic(self.isa)) is not None]

    @property
    def stored_type(self) -> WeightType | None:
        """The least that is taken over from a quantized checkpoint."""
        types = [weight.scheme.weight.type for weight in self.program.linear_weights if weight.stored]
        return min(types, key=lambda type_: type_.bits, default=None)


def choose_isa(config: BuildConfig) -> Isa:
    """The instruction set to compile for. Raises BuildError where the check could not run it on this machine."""
    native = native_isa()
    if config.isa == "native":
        if native is None:
            raise BuildError(
                "this machine lacks AVX2, the least that cpu engines need; name an instruction set with --isa, "
                "add --no-check, and run the engine elsewhere"
            )
        return native
    wanted = Isa(config.isa)
    order = list(Isa)
    if config.check and (native is None or order.index(wanted) > order.index(native)):
        raise BuildError(
            f"--isa {wanted} was asked for, but this machine has {native or 'not even AVX2'}, so the engine cannot be "
            "checked here; add --no-check to build it for another machine"
        )
    return wanted


def plan(
    network: "Network",
    config: BuildConfig,
    isa: Isa,
    max_seq_len: int,
    stored: Stored | None = None,
    kv_scales: Mapping[str, KvScales] | None = None,
) -> CpuPlan:
    """Lower `network`, give every buffer and weight its place, and write the source."""
    program = lower(network, config, kernels("cpu"), stored, kv_scales)
    plan_memory(program, config.max_num_tokens, config.max_batch_size)
    plan_weights(program, partial(layout_of_weight, isa=isa))
    source = emit(
        program,
        config,
        EngineFacts(f"{network.architecture} for {isa}", isa, max_seq_len, network.long_rope_after is not None),
    )
    return CpuPlan(program, source, isa, config, max_seq_len)
