"""Tensors that Transformers renames, joins or cuts while it loads a checkpoint, found out once for each checkpoint."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..checkpoint.assembly import Assembly
from ..checkpoint.checkpoint import Checkpoint
from ..errors import CacheError
from ..kept import find, keep
from .trace import trace_cache

_FILE = "conversions.json"


def converted_parameters(config: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Assembly]:
    """`trace.conversion.conversions` of a checkpoint's tensors; raises the same."""
    shapes = {name: list(info.shape) for name, info in checkpoint.tensors.items()}
    names = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()
    key = hashlib.sha256(f"{trace_cache.key(config, 1)}{names}".encode()).hexdigest()[:32]
    folder = find("conversions", key)
    if folder is not None:
        kept = json.loads((folder / _FILE).read_text())
        return {name: Assembly.from_json(data) for name, data in kept.items()}
    from .trace.conversion import conversions

    made = conversions(config, shapes)

    def save(folder: Path) -> None:
        (folder / _FILE).write_text(json.dumps({name: each.to_json() for name, each in made.items()}))

    with suppress(CacheError):
        keep("conversions", key, save)
    return made
