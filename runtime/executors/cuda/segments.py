"""Plans of TensorRT among the launches of a step: engines that read and write the arena, on the step's own stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ....errors import EngineError
from ....extras import install_command
from .driver import DriverError
from .launches import Argument, Counts, SegmentRun
from .resources import Resources

PACKAGES = ("tensorrt", "tensorrt_rtx")


class NotCaptured(EngineError):
    """A segment whose work no CUDA graph can hold."""


def check_tensorrt(made_by: str, path: Path, rebuild: str) -> None:
    """Raises EngineError where the TensorRT that made the plans of the engine in `path`, "package version", is not
    the one that is here: plans are of one version alone."""
    package, _, wanted = made_by.partition(" ")
    if package not in PACKAGES:
        raise EngineError(f"{path} has segments of {made_by!r}, which this enginesmith does not know; rebuild it")
    try:
        found = version(package)
    except PackageNotFoundError:
        advice = f"{install_command('tensorrt')} {package}=={wanted}"
        raise EngineError(
            f"{path} has segments of {made_by}, but {package} is not installed: {advice}, "
            f"or rebuild without it: {rebuild} --dense triton"
        ) from None
    if found != wanted:
        raise EngineError(
            f"{path} has segments of {made_by}, but {package} {found} is installed, which opens its own alone; "
            f"pip install {package}=={wanted}, or rebuild: {rebuild} --dense tensorrt"
        )


@dataclass
class Segment:
    """An engine with its addresses set. Its shapes are those of the step that ran it last."""

    run_of: SegmentRun
    context: Any

    def run(self, counts: Counts, stream: Any) -> None:
        """Run, or capture; a step without rows has nothing to run. Raises DriverError where TensorRT refuses."""
        rows = counts[self.run_of.count]
        if not rows:
            return
        for tensor in self.run_of.inputs:
            self.context.set_input_shape(tensor.name, (rows, *tensor.row))
        if not self.context.execute_async_v3(int(stream)):
            raise DriverError(f"TensorRT could not run the segment of {self.run_of.node}")

    def require_capturable(self, stream: Any) -> None:
        """Raises NotCaptured where a graph cannot hold what `run` does, in the shapes of its last step."""
        ask = getattr(self.context, "is_stream_capturable", None)  # TensorRT-RTX, which may compile kernels as it runs
        if ask is not None and not ask(int(stream)):
            raise NotCaptured(f"TensorRT cannot capture the segment of {self.run_of.node}")


def open_segments(
    runs: Sequence[SegmentRun], made_by: str, folder: Path, place: Callable[[Argument], int], resources: Resources
) -> list[Segment]:
    """The engines of a step's runs, whose plans lie in `folder`, in order. They share memory for activations, of which
    one at a time is in use. `place` gives the address of a tensor. Raises EngineError for a plan that TensorRT does
    not open.
    """
    if not runs:
        return []
    trt: Any = import_module(made_by.partition(" ")[0])
    log = _log_of(trt)
    runtime = trt.Runtime(log)
    engines, segments = [], []
    resources.also(lambda: (segments.clear(), engines.clear()))  # they hold device memory of their own
    for run in runs:
        engine = runtime.deserialize_cuda_engine(_read(folder / run.plan))
        if engine is None:
            raise EngineError(
                f"{made_by} could not open {folder / run.plan}: {log.last}; copy the engine again or rebuild it"
            )
        engines.append(engine)
    shared = max(engine.device_memory_size_v2 for engine in engines)
    memory = resources.memory(shared)
    for run, engine in zip(runs, engines, strict=True):
        context = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        context.set_device_memory(memory, shared)
        for tensor in (*run.inputs, *run.outputs):
            if not context.set_tensor_address(tensor.name, place(tensor.argument)):
                raise EngineError(f"{folder / run.plan} has no tensor {tensor.name}; rebuild the engine")
        segments.append(Segment(run, context))
    return segments


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error}; copy the engine again or rebuild it") from None


def _log_of(trt: Any) -> Any:
    """A logger that keeps the last error."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            super().__init__()
            self.last = "it says nothing"

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.last = message

    return Log()
