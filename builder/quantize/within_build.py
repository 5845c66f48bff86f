"""A quantization that a build asks for: a checkpoint that lasts as long as the build, and how far it is off."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.checkpoint import Checkpoint, open_checkpoint
from ...checkpoint.weights import Weights
from ...errors import OptionError
from ...progress import Progress
from ..check import Reference, compare, reference_logits
from ..config import BuildConfig
from .config import QuantizeConfig
from .quantize import quantize
from .report import QuantizeReport


@dataclass(frozen=True)
class QuantizedSource:
    """The quantized checkpoint's folder, what was done, and the checkpoint that it was made from."""

    path: Path
    report: QuantizeReport
    original: Checkpoint

    def facts(self, reference: Reference | None, max_seq_len: int, progress: Progress) -> dict[str, Any]:
        """The report, and what quantization alone changes in the logits of the check's prompts."""
        facts = asdict(self.report)
        if reference is None:
            return facts
        weights = Weights(self.original, {})
        with progress.task("logits before quantization"):
            before = np.concatenate(list(reference_logits(weights, reference.prompts, max_seq_len)))
        result = compare(np.concatenate(reference.logits), before, np.inf, np.inf)
        return facts | {"logits": {"distance": result.distance, "kl": result.kl, "top1": result.top1}}


@contextmanager
def quantized(
    checkpoint: str | Path, output: Path, config: BuildConfig, options: QuantizeConfig, progress: Progress
) -> Iterator[QuantizedSource]:
    """The checkpoint quantized, in a folder beside `output` that vanishes with the block.

    Raises OptionError where the build's own options quantize, too, and what `quantize` raises.
    """
    if config.weights is not None:
        raise OptionError(f"--weights {config.weights} and --quantize exclude each other; leave one of them out", None)
    original = open_checkpoint(checkpoint, progress)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", suffix=".quantized", dir=output.parent) as folder:
        path = Path(folder) / original.path.name  # the engine takes its model's name from it
        yield QuantizedSource(path, quantize(original.path, path, options, progress=progress), original)
