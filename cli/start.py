"""Where the console script begins: nothing is imported before a Ctrl-C has an answer, and imports take a while."""

import sys

TYPE_CHECKING = False  # as in enginesmith/__init__.py
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: "Sequence[str] | None" = None) -> None:
    """Run the command line; ends the process with 0, 2 (the user's to fix), or what a signal asks for."""
    try:
        from . import stop_signals

        stop_signals.install()
        from .main import main as run

        status = run(arguments)
    except KeyboardInterrupt:
        status = _interrupted()
    except Exception:
        if not _asked_to_stop():
            raise
        status = _interrupted()  # whatever was running made another error of the interrupt
    sys.exit(status)


def _asked_to_stop() -> bool:
    from . import stop_signals

    return stop_signals.asked()


def _interrupted() -> int:
    from . import stop_signals

    return stop_signals.say_interrupted()
