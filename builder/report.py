"""report.json: what a build did, what it cost, and how close the engine is to the model."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .lowering.program import Tactic
from .lowering.work import Work
from .targets.target import Plan


@dataclass(frozen=True)
class CheckResult:
    """The engine's logits beside Transformers' in float32.

    `distance`: the worst difference of any logit, relative to the spread (standard deviation) of its row; `kl`: the
    mean KL divergence of a row, in nats, and `kl_worst` the largest; `top1`: the share of rows whose best token agrees.
    `distance_bar` and `kl_bar` are what the scheme is allowed.
    """

    rows: int
    distance: float
    kl: float
    kl_worst: float
    top1: float
    distance_bar: float
    kl_bar: float

    @property
    def passed(self) -> bool:
        return self.distance <= self.distance_bar and self.kl <= self.kl_bar


@dataclass
class BuildReport:
    """What `build` returns and saves. Times in seconds, sizes in bytes."""

    checkpoint: str
    engine: str
    architecture: str
    target: str
    compiler: str
    compiled: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    fusions: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    tactics: list[Tactic] = field(default_factory=list)
    checkpoint_bytes: int = 0
    weights_bytes: int = 0
    table_bytes: int = 0  # of these, what only lookups read: embedding tables
    arena_bytes: int = 0
    kv_bytes_per_token: int = 0
    work: Work | None = None
    check: CheckResult | None = None
    quantization: dict[str, Any] | None = None  # what the build's own did, and what it changes; see QuantizeReport
    chat_template_error: str | None = None  # why the chat template cannot be used
    notes: list[str] = field(default_factory=list)  # what the checkpoint says that the engine does otherwise, or not
    quantized: str = ""  # what the checkpoint's own quantization is
    dequantized: dict[str, str] = field(default_factory=dict)  # weights that kernels do not take so, and why

    @contextmanager
    def time(self, step: str) -> Iterator[None]:
        """Adds the time the block takes to `seconds[step]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = round(self.seconds.get(step, 0.0) + time.perf_counter() - start, 3)

    def describe(self, plan: Plan) -> None:
        """Record what was planned."""
        program = plan.program
        self.calls = dict(Counter(type(call).__name__.removesuffix("Call") for call in program.calls))
        self.tactics = plan.tactics()
        self.work = program.work()
        self.dequantized = {
            " + ".join(str(source.name) for source in weight.sources): weight.dequantized
            for weight in program.linear_weights
            if weight.dequantized
        }
        self.weights_bytes, self.arena_bytes = program.weights_bytes, program.arena_bytes
        self.table_bytes = program.table_bytes()
        self.kv_bytes_per_token = sum(layer.token_bytes() for layer in program.layers)

    def save(self, path: Path) -> None:
        data = asdict(self)
        if self.check is not None:
            data["check"]["passed"] = self.check.passed
        path.write_text(json.dumps(data, indent=2) + "\n")
