"""How many threads NumPy's matrix products take."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads64_")


@contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Within the block a product runs on the thread that asks for it.

    For many small products, of several threads: those of BLAS would wait for each other for longer than they work. This
    holds for the OpenBLAS in NumPy's wheels; another BLAS is left as it is, and is at worst slower.
    """
    functions = _openblas()
    if functions is None:
        yield
        return
    get, put = functions
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def _openblas() -> tuple[Callable[..., int], Callable[..., int]] | None:
    """The functions that tell and set the number of threads, of the library that NumPy has loaded."""
    package = Path(np.__file__).parent
    for path in [*(package.parent / "numpy.libs").glob("*openblas*"), *(package / ".dylibs").glob("*openblas*")]:
        library = ctypes.CDLL(str(path))
        for name in _NAMES:
            functions = tuple(getattr(library, name.format(verb), None) for verb in ("get", "set"))
            if functions[0] is not None and functions[1] is not None:
                return functions[0], functions[1]
    return None
