"""Where enginesmith keeps what it can make again: downloads, traces, compiled objects."""

import os
from pathlib import Path


def cache_dir(kind: str) -> Path:
    """The cache folder for `kind` ("sources", "traces", "objects"), made if absent.

    `ENGINESMITH_CACHE` names the root; else `XDG_CACHE_HOME/enginesmith`, else `~/.cache/enginesmith`.
    """
    root = os.environ.get("ENGINESMITH_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enginesmith"
    folder = base / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder
