"""The command line as a process, on a tiny engine that it built itself."""

from cli_engine import build_flags, built, checkpoint, cli, cli_environment, command, damaged, engine

__all__ = ["build_flags", "built", "checkpoint", "cli", "cli_environment", "command", "damaged", "engine"]
