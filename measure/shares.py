"""A measured speed as a share of what this machine can do at best."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..quantization.scheme import WeightType
from ..runtime.engine_dir import read_report
from ..runtime.manifest import Manifest
from .ceilings import Ceilings
from .workloads import Figure, Measurement

_LEAST_BUFFER = 64 << 20  # below that, a read measures the cache


@dataclass(frozen=True)
class Share:
    """`achieved` and `ceiling` in bytes or operations per second; `kind` says of what."""

    kind: str
    achieved: float
    ceiling: float

    @property
    def share(self) -> float:
        return self.achieved / self.ceiling


class Yardstick:
    """Holds the runs of one engine against ceilings measured here. Raises KeyError for a report that has no work."""

    def __init__(self, engine: Path, manifest: Manifest, ceilings: Ceilings, threads: int) -> None:
        report = read_report(engine)
        self._work: dict[str, Any] = report["work"]
        self._kv_bytes: int = report["kv_bytes_per_token"]
        self._ceilings, self._threads = ceilings, threads
        self._buffer = max(self._work["linear_bytes"], _LEAST_BUFFER)
        self.instruction = ceilings.instruction_of(WeightType(manifest.quantization.scheme))

    def calibrate(self) -> None:
        """Read both ceilings once more: before and after what is measured, since a machine's neighbours come and go."""
        self._ceilings.read_bandwidth(self._buffer, self._threads)
        self._ceilings.peak(self.instruction, self._threads)

    def read(self, run: Measurement) -> Share | None:
        """Bytes read per second while one stream decodes: the weights and the sequence's cache, once a token."""
        if run.workload.figure is not Figure.DECODE:
            return None
        mean_context = run.prompt_tokens + (run.output_tokens + 1) / 2
        bytes_per_token = self._work["linear_bytes"] + self._kv_bytes * mean_context
        ceiling = self._ceilings.read_bandwidth(self._buffer, self._threads)
        return Share(f"read of {self._buffer >> 20} MiB", bytes_per_token * run.tokens_per_second, ceiling)

    def compute(self, run: Measurement) -> Share | None:
        """Operations per second until the first token of a prompt, or of the whole batch."""
        match run.workload.figure:
            case Figure.DECODE:
                return None
            case Figure.PREFILL:
                seconds = run.ttfts[0]
            case Figure.BATCH:
                seconds = run.wall
        work = self._work
        ops = 0
        for prompt, output in run.workload.lengths():
            tokens = prompt + output - 1
            ops += tokens * work["token_ops"] + output * work["logits_ops"]
            ops += work["attention_ops"] * tokens * (tokens + 1) // 2
        peak = self._ceilings.peak(self.instruction, self._threads)
        return Share(self.instruction, ops / seconds, peak)
