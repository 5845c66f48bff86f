"""From the name of a target, or its options, to the target, which is imported only then."""

from importlib import import_module

from .options import TargetOptions
from .target import Target


def target_of(options: TargetOptions) -> Target:
    """The target that the options belong to."""
    return target_named(options.name)


def target_named(name: str) -> Target:
    """TARGET of the target's target.py."""
    return import_module(f".{name}.target", __package__).TARGET
