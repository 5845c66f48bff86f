"""The plugins there are: the folders beside this file, those that installed packages bring, and registered ones.

A package brings a plugin by an entry point of the group `enginesmith.plugins`, whose value is the plugin's package.
"""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import UnsupportedModelError
from .plugin import DOMAIN, Operation

ENTRY_POINTS = "enginesmith.plugins"
_HERE = Path(__file__).resolve().parent
_registered: list[str] = []


@dataclass(frozen=True)
class Plugin:
    """A package with an op.py, passes.py, or a folder for a target."""

    package: str

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return Path(import_module(self.package).__path__[0]).resolve()

    def attribute(self, module: str, name: str) -> Any:
        """What one of its modules defines under `name`; None where there is no such module."""
        path = f"{self.package}.{module}"
        parent = path.rpartition(".")[0]
        if (parent != self.package and not find_spec(parent)) or not find_spec(path):
            return None
        return getattr(import_module(path), name)


@cache
def plugins() -> tuple[Plugin, ...]:
    """Every plugin, this package's own first."""
    package = __package__ or ""
    own = sorted(module.name for module in pkgutil.iter_modules([str(_HERE)]) if module.ispkg)
    brought = sorted(point.value for point in entry_points(group=ENTRY_POINTS))
    packages = [*(f"{package}.{name}" for name in own), *brought, *_registered]
    return tuple(Plugin(name) for name in dict.fromkeys(packages))


@cache
def operations() -> Mapping[str, Operation]:
    """Every operation of every plugin, by name. Raises UnsupportedModelError where two have one name."""
    found: dict[str, Operation] = {}
    for plugin in plugins():
        for each in plugin.attribute("op", "OPERATIONS") or ():
            if each.name in found:
                raise UnsupportedModelError(
                    f"the plugin {plugin.package} defines {each.name}, which is defined already"
                )
            found[each.name] = each
    return MappingProxyType(found)


def operation(name: str, domain: str = DOMAIN) -> Operation:
    """The operation called `name`. Raises UnsupportedModelError where there is none."""
    if domain == DOMAIN and name in operations():
        return operations()[name]
    raise UnsupportedModelError(
        f"no plugin provides {domain or 'ai.onnx'}::{name}; the plugins provide {sorted(operations())}"
    )


def kernels(target: str) -> Sequence[Any]:
    """What the plugins' folders for a target define as KERNELS, those of the last plugin first."""
    found = [plugin.attribute(f"{target}.kernel", "KERNELS") or () for plugin in plugins()]
    return [kernel for group in reversed(found) for kernel in group]


def passes() -> Mapping[str, Any]:
    """The passes that plugins bring to make their operations: PASSES of their passes.py, by name."""
    return {name: run for plugin in plugins() for name, run in (plugin.attribute("passes", "PASSES") or {}).items()}


def traced_functions() -> Mapping[str, Any]:
    """What stands for functions of Transformers while a model is traced: FUNCTIONS of the plugins' trace.py, by the
    names that kernels for them have on the Hub.
    """
    return {name: run for plugin in plugins() for name, run in (plugin.attribute("trace", "FUNCTIONS") or {}).items()}


def include_folders() -> list[Path]:
    """The folders below which the headers of plugins lie, under their plugin's name."""
    return list(dict.fromkeys([_HERE, *(plugin.folder.parent for plugin in plugins())]))


@contextmanager
def registered(package: str) -> Iterator[None]:
    """While this holds, the importable package is a plugin, too."""
    _registered.append(package)
    _forget()
    try:
        yield
    finally:
        _registered.remove(package)
        _forget()


def _forget() -> None:
    plugins.cache_clear()
    operations.cache_clear()
