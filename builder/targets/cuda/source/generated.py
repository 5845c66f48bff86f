"""Kernels whose source is generated: written to the cache under the digest of their text, and imported from there.

Triton reads a kernel's source from its file.
"""

import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .....kept import find, keep

_PRELUDE = """\
import triton
import triton.language as tl

from enginesmith.plugins.cuda.elementary import gelu, gelu_tanh, nearest, power, sigmoid, softplus, tanh  # noqa: F401

"""
_FILE = "kernel.py"
GENERATED = "enginesmith_generated_"
"""How the names of their modules begin."""


@cache
def kernel_of(source: str, name: str) -> Any:
    """The function of triton.jit called `name` that `source`, which follows some imports, defines."""
    text = _PRELUDE + "\n" + source
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    folder = find("triton-sources", key) or keep(
        "triton-sources", key, lambda folder: (folder / _FILE).write_text(text, encoding="utf-8")
    )
    return getattr(load_module(folder / _FILE), name)


@cache
def load_module(path: Path) -> Any:
    """The module in a file, under a name made of its folder's."""
    name = GENERATED + path.parent.name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
