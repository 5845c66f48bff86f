"""The `enginesmith` command: finds the subcommand, shows errors, chooses the exit code."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from .. import __version__
from ..blame import advice
from ..errors import EnginesmithError
from ..extras import install_command
from . import stop_signals, terminal

# Name -> one line of help: so that `enginesmith --help` imports no command.
_COMMANDS = {
    "build": "Build an engine from a checkpoint.",
    "quantize": "Quantize a checkpoint.",
    "run": "Generate text with an engine.",
    "serve": "Serve an engine over HTTP, as OpenAI's API does.",
    "eval": "Measure perplexity, and how far a model is from another.",
    "inspect": "Show what is inside an engine.",
    "bench": "Measure an engine's speed.",
    "tune": "Find the batch and step sizes that serve the most under a bound of latency.",
    "recipe": "Run a recipe: fetch, import, build, check, demo.",
    "doctor": "Show what this machine can build and run.",
}

# What the extras bring; a plain install only runs engines.
EXTRAS = {
    "build": {"torch", "transformers", "onnx", "onnx_ir", "safetensors", "ml_dtypes", "gguf", "huggingface_hub"},
    "serve": {"fastapi", "starlette", "uvicorn", "prometheus_client"},
}

USAGE_ERROR = 2
_MOST_OF_A_PATH, _MOST_OF_A_MESSAGE = 300, 8000


class _ReaderGoneError(Exception):
    """Nobody reads our output any more: `enginesmith inspect x | head -1`."""


class LazyGroup(click.Group):
    """A group that imports a command's file only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f".{cmd_name}", __package__).command

    def invoke(self, ctx: click.Context) -> object:
        """click itself would end the process with 1 where the reader of our output went away."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGoneError from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="enginesmith")
def cli() -> None:
    """Compile Hugging Face language models into engines, then run them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, 2 (the user's to fix) or 130."""
    terminal.prepare()
    try:
        result = cli.main(arguments, prog_name="enginesmith", standalone_mode=False)
        if sys.stdout is not None:  # None where the shell closed it
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return stop_signals.say_interrupted()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        terminal.say(shown.getvalue().removesuffix("\n"), err=True)
        return error.exit_code
    except EnginesmithError as error:
        _complain(str(error))
        return USAGE_ERROR
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        extra = next((extra for extra, libraries in EXTRAS.items() if library in libraries), None)
        if extra is None:
            raise
        _complain(f"this needs {error.name}, a library of the extra {extra!r}: {install_command(extra)}")
        return USAGE_ERROR
    except (BrokenPipeError, _ReaderGoneError):
        if sys.stdout is not None:  # it is where the process was started with its output closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        what_to_do = advice(error)
        if what_to_do is None:
            raise
        where = f"{str(error.filename)[:_MOST_OF_A_PATH]}: " if error.filename else ""
        _complain(f"{where}{error.strerror}; {what_to_do}")
        return USAGE_ERROR
    except MemoryError:
        _complain("out of memory; free some, or lower what was asked for (max_batch_size, max_seq_len, KV cache)")
        return USAGE_ERROR


def _complain(message: str) -> None:
    shown = message if len(message) <= _MOST_OF_A_MESSAGE else f"{message[:_MOST_OF_A_MESSAGE]} ..."
    terminal.say(f"error: {shown}", fg="red", err=True)
