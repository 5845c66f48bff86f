"""The targets there are, and the options that belong to them. A target is a folder beside this file."""

from importlib import import_module

from ...checked_options import Options

TARGETS = ("cpu", "cuda")
DEFAULT = "cpu"


class TargetOptions(Options):
    """Base of the options of every target, whose `name` tells them apart."""

    name: str


def options_of(name: str) -> type[TargetOptions]:
    """The options of a target: OPTIONS of its options.py."""
    return import_module(f".{name}.options", __package__).OPTIONS
