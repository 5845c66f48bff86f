"""A call whose kernel may need memory of its own."""

from dataclasses import dataclass

from .program import Call
from .values import Values


@dataclass
class FusedCall(Call):
    """A call that a plugin makes for all targets, in terms of its inputs and results."""

    def allocate(self, values: Values) -> None:
        """Take the memory that a target's kernel needs beside those; called once, before the call is emitted."""
