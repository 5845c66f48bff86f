"""Kernels of which a step takes one, for so many rows: what a choice is among, and what was chosen, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from .launch import Launch, When


@dataclass(frozen=True)
class Candidate:
    """Launches, in order, that a step may take; `title` tells them from the others."""

    title: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Choice:
    """Candidates for the steps of `when` (None: all), which give the same; the first is taken where nothing is timed.

    `shape`: of what the kernels compute, for people: "linear 4096x4096 bf16".
    """

    shape: str
    when: When | None
    candidates: tuple[Candidate, ...]

    @property
    def bucket(self) -> str:
        """The steps, for people: "T 1-16"."""
        return "all" if self.when is None else f"{self.when.count} {self.when.rows}"


@dataclass(frozen=True)
class Pick:
    """The candidate taken, and why."""

    candidate: Candidate
    reason: str


class Picks:
    """What is taken of every choice.

    `timed`: by shape and bucket, a candidate's title, and why; others are those of the tables for compute capability
    `sm`.
    """

    def __init__(self, sm: int, timed: Mapping[tuple[str, str], tuple[str, str]] | None = None) -> None:
        self._reason, self._timed = f"table for sm_{sm}", timed or {}

    def of(self, choice: Choice) -> Pick:
        title, reason = self._timed.get((choice.shape, choice.bucket), ("", ""))
        found = next((candidate for candidate in choice.candidates if candidate.title == title), None)
        return Pick(choice.candidates[0], self._reason) if found is None else Pick(found, reason)
