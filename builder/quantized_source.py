"""Where a checkpoint comes from that a build quantized, and how far that is off."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.weights import Weights
from ..progress import Progress
from .check import Reference, compare, reference_logits


@dataclass(frozen=True)
class QuantizedSource:
    """The quantized checkpoint's folder, what was done (a QuantizeReport's fields), and what it was made from."""

    path: Path
    report: dict[str, Any]
    original: Checkpoint

    def facts(self, reference: Reference | None, progress: Progress) -> dict[str, Any]:
        """The report, and what quantization alone changes in the logits of the check's prompts."""
        if reference is None:
            return self.report
        weights = Weights(self.original, {})
        with progress.task("logits before quantization"):
            before = np.concatenate(list(reference_logits(weights, reference.prompts)))
        result = compare(np.concatenate(reference.logits), before, np.inf, np.inf)
        return self.report | {"logits": {"distance": result.distance, "kl": result.kl, "top1": result.top1}}
