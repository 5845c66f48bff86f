"""Loading a library of an engine."""

import ctypes
from collections.abc import Callable
from pathlib import Path

from ...atomic import temporary_folder
from ...errors import EngineError


def load_library(path: Path, declare: Callable[[ctypes.CDLL], None]) -> ctypes.CDLL:
    """Load a library under a name of its own, and let `declare` give its functions their types. Raises EngineError.

    The C library recognises a library by its path before it looks at the file: an engine rebuilt in place would
    silently be the old one. A passing symbolic link gives every load a fresh path.
    """
    try:
        with temporary_folder() as folder:
            link = folder / path.name
            link.symlink_to(path.resolve())
            library = ctypes.CDLL(str(link))
        declare(library)
    except (OSError, AttributeError) as error:
        raise EngineError(f"{path} cannot be loaded: {error}; rebuild the engine") from None
    return library
