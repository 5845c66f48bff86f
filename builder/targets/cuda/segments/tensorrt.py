"""TensorRT as a builder: which of its packages is here, and plans from models, in a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx_ir as ir

from .....atomic import temporary_folder
from .....errors import ToolchainError
from .....extras import install_command
from .....runtime.executors.cuda.segments import PACKAGES

_WORKER = f"{__package__}.build_worker"
WORKSPACE_BYTES = 256 << 20
"""What an engine may take at most for scratch memory of its kernels."""


@dataclass(frozen=True)
class TensorRt:
    """A package, by the name that is imported, and its version."""

    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def find_tensorrt(sm: int, device_sm: int | None) -> TensorRt:
    """The package that builds for a compute capability. `device_sm`: that of this machine's GPU, if it has one.

    `tensorrt` measures kernels, so that it builds for the GPU that is here; `tensorrt_rtx` builds without one. Raises
    ToolchainError where none is here that can.
    """
    found = [name for name in PACKAGES if find_spec(name) is not None]
    if "tensorrt" in found and device_sm == sm:
        return _named("tensorrt")
    if "tensorrt_rtx" in found:
        if sm in _SM_OF_RTX:
            return _named("tensorrt_rtx")
        names = ", ".join(map(str, _SM_OF_RTX))
        raise ToolchainError(
            f"--dense tensorrt: tensorrt_rtx builds for compute capabilities {names}, not {sm}; build on a machine "
            f"with such a GPU, with tensorrt installed (pip install tensorrt), or with --dense triton"
        )
    if found:
        raise ToolchainError(
            f"--dense tensorrt: tensorrt builds for a GPU that is at hand, of compute capability {sm}, but "
            "there is none here; build there, install tensorrt-rtx, or build with --dense triton"
        )
    advice = f"{install_command('tensorrt')}, or build with --dense triton"
    raise ToolchainError(f"--dense tensorrt needs TensorRT, which is not installed: {advice}")


_SM_OF_RTX = (80, 86, 89, 120)


def _named(package: str) -> TensorRt:
    try:
        return TensorRt(package, version(package))
    except PackageNotFoundError as error:
        raise ToolchainError(
            f"{package} can be imported, but was not installed by pip: {install_command('tensorrt')}"
        ) from error


@dataclass
class EngineBuilder:
    """A process that builds one plan after another, with one timing cache. A context: at its end the process ends."""

    engine: TensorRt
    sm: int
    peak_bytes: int = 0
    """The most memory that the process held."""
    _process: "subprocess.Popen[str] | None" = field(default=None, repr=False)

    def __enter__(self) -> "EngineBuilder":
        command = [sys.executable, "-m", _WORKER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell({"path": sys.path, "package": self.engine.package, "sm": self.sm, "workspace": WORKSPACE_BYTES})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def build(self, model: ir.Model, rows: tuple[int, int, int], plan: Path) -> None:
        """Write the plan of a model whose inputs have the least, the likeliest and the most `rows`.

        Raises ToolchainError with what TensorRT says where it refuses.
        """
        with temporary_folder() as folder:
            ir.save(model, folder / "segment.onnx", external_data="weights")
            answer = self._ask({"model": str(folder / "segment.onnx"), "rows": rows, "plan": str(plan)})
        if "error" in answer:
            raise ToolchainError(
                f"{self.engine} could not build {model.graph.name} for sm_{self.sm}: {answer['error']}; "
                "build with --dense triton"
            )
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            self._tell(message)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"its process ended with status {self._process.wait()}"}
