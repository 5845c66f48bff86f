"""The segments of an engine: which there are, what they take, and their plans."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .....progress import Progress
from .....units import shown_size
from ....build_options import BuildConfig
from ....lowering.dims import Symbol, static_size
from ....lowering.facts import Facts
from ....lowering.program import Program
from ....lowering.program_weights import ProgramWeights
from ....lowering.stored_rows import Stored
from ....passes.derived import Read
from ..source.standard import Setting
from .call import SegmentCall
from .export import export
from .segment import Cut, Segment, cut
from .tensorrt import WORKSPACE_BYTES, EngineBuilder, TensorRt

if TYPE_CHECKING:
    from ....network import Network


@dataclass(frozen=True)
class Segments:
    """A network that was cut for `engine`."""

    engine: TensorRt
    setting: Setting
    cut: Cut
    config: BuildConfig
    _built: list[str] = field(default_factory=list)  # what building them took

    @property
    def names(self) -> list[str]:
        """The files of plans, by the numbers of segments."""
        return [plan_name(segment) for segment in self.cut.segments]

    def rows(self, segment: Segment) -> tuple[int, int, int]:
        """The least, likeliest and most rows: the likeliest is a step of decoding with all the requests it may have."""
        config = self.config
        most = config.max_num_tokens if segment.symbol is Symbol.TOKENS else config.max_batch_size
        return 1, min(config.max_batch_size, most), most

    def device_bytes(self) -> int:
        """Bytes that weights and activations may take: the latter are shared, and at most all results side by side."""
        segments, facts = self.cut.segments, self.setting.facts
        weights = {id(weight): weight.nbytes for segment in segments for weight in segment.weights}
        results = [
            sum(4 * static_size(facts.shape(out)) for node in segment.nodes for out in node.outputs)
            * self.rows(segment)[2]
            for segment in segments
        ]
        return sum(weights.values()) + max(results, default=-WORKSPACE_BYTES) + WORKSPACE_BYTES

    def build(self, program: Program, folder: Path, read: Read, progress: Progress) -> None:
        """Write all plans into a folder, one after another: of weights, only one segment's are in memory."""
        calls = [call for call in program.calls if isinstance(call, SegmentCall)]
        if not calls:
            return
        with EngineBuilder(self.engine, self.setting.sm) as builder, progress.task("segments", len(calls)) as task:
            for call in calls:
                model = export(call, self.setting, read)
                builder.build(model, self.rows(call.segment), folder / plan_name(call.segment))
                task.advance(1)
        size = sum((folder / name).stat().st_size for name in self.names)
        self._built.append(f"their plans take {shown_size(size)}, building them took {shown_size(builder.peak_bytes)}")

    def notes(self) -> list[str]:
        """For the report: what TensorRT computes, and what it does not."""
        counts = Counter(self.cut.kept.values())
        first = {why: name for name, why in reversed(self.cut.kept.items())}
        kept = [
            f"Triton's kernels compute {first[why]}{f' and {count - 1} more' if count > 1 else ''}: {why}"
            for why, count in counts.items()
        ]
        if not self.cut.segments:
            return ["TensorRT computes nothing of this model", *kept]
        least, likeliest, most = self.rows(self.cut.segments[0])
        made = (
            f"{self.engine} computes {len(self.cut.segments)} segments, for {least} to {most} tokens and at best for "
            f"{likeliest}; so a request's output may depend on the others"
        )
        return ["; ".join([made, *self._built]), *kept]


def plan_name(segment: Segment) -> str:
    return f"segment_{segment.number}.plan"


def cut_for(engine: TensorRt, network: "Network", config: BuildConfig, sm: int, stored: Stored | None) -> Segments:
    """Cut a network, which stays as it is."""
    weights = ProgramWeights(Facts(network), config, stored or {}, Program())
    setting = Setting(weights, sm)
    return Segments(engine, setting, cut(network, setting), config)
