"""What runs the engines of each target: modules of this folder, imported when an engine of theirs is opened."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ...errors import EngineError, shown
from ..manifest import Manifest, Target
from .executor import Executor

_MODULES = {"cpu": "cpu_backend", "cuda": "cuda.backend"}


class Backend(Protocol):
    """What such a module defines. FACTS is the target's own part of the manifest."""

    FACTS: type[Target]

    def check_machine(self, path: Path, manifest: Manifest) -> None:
        """Raises EngineError, naming what is missing, where this machine cannot run the engine in `path`."""
        ...

    def describe(self, target: Any) -> dict[str, str]:
        """What a user wants to know of the facts."""
        ...

    def cache_memory(self, target: Any, utilization: float | None) -> tuple[int, str]:
        """Bytes that the KV cache may take beside weights and activations, and what says so.

        `utilization`: the share of the memory that all of them may take together; None: the backend's own default.
        """
        ...

    def open_executor(
        self, path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None
    ) -> Executor: ...


def backend_of(name: object) -> Backend:
    """The backend of a target. Raises EngineError for one that this enginesmith does not run."""
    if not isinstance(name, str) or name not in _MODULES:
        raise EngineError(f"built for target {shown(name)}; this enginesmith runs engines for {', '.join(_MODULES)}")
    module: Any = import_module(f".{_MODULES[name]}", __package__)
    return module


def facts_of(name: object) -> type[Target]:
    """The class of a target's part of the manifest; raises what `backend_of` raises."""
    return backend_of(name).FACTS


def open_executor(path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None = None) -> Executor:
    """The engine in `path`, opened with room for `num_blocks[g]` KV blocks in cache group g. Raises EngineError.

    `threads`: default, every physical core.
    """
    return backend_of(manifest.target.name).open_executor(path, manifest, num_blocks, threads)
