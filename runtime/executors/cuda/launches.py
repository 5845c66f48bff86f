"""launches.json: the kernels of an engine, and the launches that a step is made of. The builder writes it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ....errors import EngineError
from ....json_files import read_object

MAX_GRID = (2**31 - 1, 65535, 65535)


class Count(StrEnum):
    """What is counted in a step: tokens, rows of logits, sequences, and the most tokens of one sequence."""

    TOKENS = "T"
    ROWS = "R"
    SEQUENCES = "S"
    QUERIES = "Q"


Counts = Mapping[Count, int]


class Home(StrEnum):
    """What an argument is: a pointer into a memory of the engine's, or a count of the step as int32."""

    ARENA = "arena"
    WEIGHTS = "weights"
    CACHE = "cache"
    INPUT = "input"
    COUNT = "count"


@dataclass(frozen=True)
class Argument:
    """`offset` in bytes. `name`: of an input or a count. `group`: of a cache group's pool, or a group's block table."""

    home: Home
    offset: int = 0
    name: str = ""
    group: int = 0


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: a function of `file`, which lies beside the table.

    `threads` of a block; `shared`: bytes of dynamic shared memory; `registers` of a thread; `local`: bytes of memory
    that a thread has beside them. `source`: module and function; `constants`: what it was specialised for.
    """

    file: str
    entry: str
    threads: int
    shared: int
    registers: int
    local: int
    source: str
    constants: dict[str, Any]
    signature: dict[str, str]


@dataclass(frozen=True)
class Extent:
    """A size of a grid: `constant` plus the sum over `terms` (count, times, per) of count * times / per, rounded up."""

    constant: int = 0
    terms: tuple[tuple[Count, int, int], ...] = ()

    @classmethod
    def of(cls, count: Count) -> "Extent":
        return cls(terms=((count, 1, 1),))

    def __add__(self, other: "Extent") -> "Extent":
        return Extent(self.constant + other.constant, self.terms + other.terms)

    def size(self, counts: Counts) -> int:
        return self.constant + sum(-(-counts[count] * times // per) for count, times, per in self.terms)


@dataclass(frozen=True)
class When:
    """Steps with `least` to `most` (None: without end) of `count`."""

    count: Count
    least: int
    most: int | None = None

    @property
    def rows(self) -> str:
        """As a report names it: "1-16", "17-", "1"."""
        if self.most == self.least:
            return str(self.least)
        return f"{self.least}-{'' if self.most is None else self.most}"

    def holds(self, counts: Counts) -> bool:
        return self.least <= counts[self.count] and (self.most is None or counts[self.count] <= self.most)


@dataclass(frozen=True)
class Launch:
    """One launch of kernel number `kernel`, of the node `node`, in the steps that `when` holds for."""

    node: str
    kernel: int
    grid: tuple[Extent, ...]
    arguments: tuple[Argument, ...]
    when: When | None

    def size(self, counts: Counts) -> tuple[int, int, int]:
        """The grid in a step."""
        sizes = [extent.size(counts) for extent in self.grid]
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z


@dataclass(frozen=True)
class Tensor:
    """An input or output of a plan, by its name there; `row`: its sizes after the one that varies."""

    name: str
    argument: Argument
    row: tuple[int, ...]


@dataclass(frozen=True)
class SegmentRun:
    """One run of a TensorRT engine, whose `plan` lies beside the table, over `count` rows."""

    node: str
    plan: str
    count: Count
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class LaunchTable:
    """All of a step. `logits` float32 [R, V] and `tokens` int32 [R], the likeliest of each row, lie in the arena."""

    kernels: tuple[Kernel, ...]
    launches: tuple[Launch | SegmentRun, ...]
    logits: int
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_launches(path: Path) -> LaunchTable:
    """The table in a file. Raises EngineError where it is none."""
    advice = "copy the engine again or rebuild it"
    data = read_object(path, EngineError, advice)
    try:
        kernels = tuple(Kernel(**kernel) for kernel in data["kernels"])
        launches = tuple(
            _segment(launch) if "plan" in launch else _launch(launch, len(kernels)) for launch in data["launches"]
        )
        return LaunchTable(kernels, launches, int(data["logits"]), int(data["tokens"]))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"{path} is no table of launches: {type(error).__name__}: {error}; {advice}") from None


def _launch(data: Any, num_kernels: int) -> Launch:
    when = data["when"]
    if not 0 <= data["kernel"] < num_kernels or not 1 <= len(data["grid"]) <= 3:
        raise ValueError(f"the launch of {data['node']!r} has kernel {data['kernel']} and {len(data['grid'])} sizes")
    return Launch(
        node=data["node"],
        kernel=data["kernel"],
        grid=tuple(_extent(extent["constant"], extent["terms"]) for extent in data["grid"]),
        arguments=tuple(_argument(**argument) for argument in data["arguments"]),
        when=None if when is None else When(Count(when["count"]), when["least"], when["most"]),
    )


def _segment(data: Any) -> SegmentRun:
    inputs, outputs = (
        tuple(Tensor(one["name"], _argument(**one["argument"]), tuple(map(int, one["row"]))) for one in data[side])
        for side in ("inputs", "outputs")
    )
    return SegmentRun(data["node"], data["plan"], Count(data["count"]), inputs, outputs)


def _extent(constant: int, terms: Sequence[tuple[str, int, int]]) -> Extent:
    return Extent(int(constant), tuple((Count(count), int(times), int(per)) for count, times, per in terms))


def _argument(home: str, offset: int, name: str, group: int) -> Argument:
    return Argument(Home(home), int(offset), name, int(group))
