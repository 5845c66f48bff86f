"""How long candidates took, in a JSON file that builds read and add to."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ....atomic import new_file
from ....errors import BuildError
from ....json_files import read_object

_FORMAT = 1


@dataclass(frozen=True)
class Timing:
    """Microseconds of each candidate of a choice, by title, on a GPU with a driver for that CUDA.

    `digest`: of the candidates' kernels, all that they were specialised for, and the compiler.
    """

    gpu: str
    driver: str
    digest: str
    shape: str
    bucket: str
    microseconds: dict[str, float]

    @property
    def best(self) -> str:
        return min(self.microseconds, key=lambda title: self.microseconds[title])

    @property
    def summary(self) -> str:
        """Of the best, and the one after it."""
        first, *others = sorted(self.microseconds.values())
        return f"{first:.1f} us" + (f", the next {others[0]:.1f}" if others else "")


class TimingCache:
    """The timings in a file, which need not exist yet; without one, those of this build. Raises BuildError."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._timings = _read(path) if path is not None and path.exists() else []

    def find(self, digest: str, shape: str, bucket: str, gpu: str | None, driver: str | None) -> Timing | None:
        """What is known of a choice, on that GPU, or where none is named, on any."""
        wanted = (digest, shape, bucket)
        for timing in self._timings:
            same = (timing.digest, timing.shape, timing.bucket) == wanted
            if same and (gpu is None or (timing.gpu, timing.driver) == (gpu, driver)):
                return timing
        return None

    def add(self, timing: Timing) -> None:
        self._timings.append(timing)

    def save(self) -> None:
        """Write the file anew, with what other builds have added meanwhile. Raises BuildError."""
        if self.path is None:
            return
        known = {json.dumps(asdict(timing)) for timing in self._timings}
        others = _read(self.path) if self.path.exists() else []
        self._timings += [timing for timing in others if json.dumps(asdict(timing)) not in known]
        ordered = sorted(self._timings, key=lambda timing: (timing.gpu, timing.shape, timing.bucket, timing.digest))
        data = {"format": _FORMAT, "timings": [asdict(timing) for timing in ordered]}
        try:
            with new_file(self.path) as file:
                file.write_text(json.dumps(data, indent=1) + "\n")
        except OSError as error:
            raise BuildError(f"the timing cache {self.path} cannot be written: {error.strerror}") from None


def _read(path: Path) -> list[Timing]:
    advice = "name another file with --timing-cache, or remove it"
    data = read_object(path, BuildError, advice)
    try:
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']}, not {_FORMAT}")
        timings = [Timing(**timing) for timing in data["timings"]]
        if not all(timing.microseconds and min(timing.microseconds.values()) > 0 for timing in timings):
            raise ValueError("a timing is not above 0")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BuildError(f"{path} is no timing cache: {type(error).__name__}: {error}; {advice}") from None
    return timings
