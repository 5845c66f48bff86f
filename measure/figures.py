"""Pictures by matplotlib, which the extra `plot` brings."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic import new_file
from ..errors import EvaluationError
from ..extras import install_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> "type[Figure]":
    """Its class Figure. Raises EvaluationError where it is missing."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        advice = install_command("plot")
        raise EvaluationError(f"plots need matplotlib, of the extra 'plot': {advice}") from None
    return Figure


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Write a PNG, whole or not at all. Raises EvaluationError where that cannot be."""
    try:
        with new_file(Path(path)) as work:
            figure.savefig(work, format="png", dpi=120)
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be written: {error.strerror or error}; name another file") from error
