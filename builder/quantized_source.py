"""Where a checkpoint comes from that a build quantized, and how far that is off."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.weights import Weights
from ..progress import Progress
from .check import Reference, compare, reference_logits
from .quantize.report import QuantizeReport


@dataclass(frozen=True)
class QuantizedSource:
    """The quantized checkpoint's folder, what was done, and the checkpoint that it was made from."""

    path: Path
    report: QuantizeReport
    original: Checkpoint

    def facts(self, reference: Reference | None, progress: Progress) -> dict[str, Any]:
        """The report, and what quantization alone changes in the logits of the check's prompts."""
        facts = asdict(self.report)
        if reference is None:
            return facts
        weights = Weights(self.original, {})
        with progress.task("logits before quantization"):
            before = np.concatenate(list(reference_logits(weights, reference.prompts)))
        result = compare(np.concatenate(reference.logits), before, np.inf, np.inf)
        return facts | {"logits": {"distance": result.distance, "kl": result.kl, "top1": result.top1}}
