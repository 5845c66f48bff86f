"""From the options of a target to the target, which is imported only then."""

from importlib import import_module

from .options import TargetOptions
from .target import Target


def target_of(options: TargetOptions) -> Target:
    """The target that the options belong to: TARGET of its target.py."""
    return import_module(f".{options.name}.target", __package__).TARGET
