"""Kernels to cubins: in processes of their own, one a core, and cached by all that goes into them."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ....atomic import temporary_folder
from ....errors import ToolchainError
from ....kept import find, keep
from ....runtime.threads import physical_cores
from .source.generated import GENERATED
from .specialize import Specialization

CUBIN, FACTS = "kernel.cubin", "facts.json"
KIND = "cubins"
_WORKER = f"{__package__}.compile_worker"


def compiler_name() -> str:
    """What compiles, with its version."""
    return f"triton {version('triton')}"


def assembler_version(sm: int) -> int:
    """The CUDA of the assembler that Triton uses for a compute capability, 13040 for 13.4."""
    from triton.backends.nvidia.compiler import get_ptxas

    major, minor = get_ptxas(sm).version.split(".")[:2]
    return 1000 * int(major) + 10 * int(minor)


@dataclass
class Compilation:
    """Kernels that are being compiled into the cache, by their keys."""

    kernels: Mapping[str, Specialization]
    cached: bool = True
    _pending: "SimpleQueue[str]" = field(default_factory=SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)
    _workers: list["subprocess.Popen[str]"] = field(default_factory=list)
    _errors: list[str] = field(default_factory=list)

    def wait(self) -> dict[str, Path]:
        """The folder of every kernel, which holds CUBIN and FACTS. Raises ToolchainError if one did not compile."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise ToolchainError(self._errors[0])
        folders = {key: find(KIND, key) for key in self.kernels}
        gone = [self.kernels[key].source for key, folder in folders.items() if folder is None]
        if gone:
            raise ToolchainError(f"the compilation of {gone[0]} was stopped; build again")
        return {key: folder for key, folder in folders.items() if folder is not None}

    def cancel(self) -> None:
        """Stop what still runs."""
        while not self._pending.empty():
            self._pending.get()
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    def _start(self, keys: list[str]) -> None:
        self.cached = not keys
        for key in keys:
            self._pending.put(key)
        for _ in range(min(physical_cores(), len(keys))):
            thread = threading.Thread(target=self._serve, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        """Give a worker of its own one kernel after another."""
        command = [sys.executable, "-m", _WORKER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            self._workers.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(sys.path) + "\n")
            while not self._errors:
                try:
                    key = self._pending.get_nowait()
                except Empty:
                    break
                self._compile(worker, key)
            worker.stdin.close()

    def _compile(self, worker: "subprocess.Popen[str]", key: str) -> None:
        kernel = self.kernels[key]
        try:
            with temporary_folder() as folder:
                _ask(worker, kernel, folder)
                keep(KIND, key, lambda kept: shutil.copytree(folder, kept, dirs_exist_ok=True))
        except Exception as error:
            self._errors.append(f"{compiler_name()} could not compile {kernel.source} for sm_{kernel.sm}: {error}")


def _ask(worker: "subprocess.Popen[str]", kernel: Specialization, folder: Path) -> None:
    """One job of compile_worker.py, its facts beside the cubin in `folder`."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps({**job_of(kernel), "output": str(folder)}) + "\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise ToolchainError("the compiler's process ended")
    answer = json.loads(line)
    if "error" in answer:
        raise ToolchainError(answer["error"])
    (folder / FACTS).write_text(json.dumps(answer))


def job_of(kernel: Specialization) -> dict[str, Any]:
    """A kernel as JSON has it: where its function is, and what it is specialised for."""
    function = kernel.function.fn
    file = function.__code__.co_filename if function.__module__.startswith(GENERATED) else ""
    return {"module": function.__module__, "file": file, "function": function.__name__, **kernel.facts()}


def start_compiling(kernels: Mapping[str, Specialization]) -> Compilation:
    """Begin to compile those that the cache does not have."""
    compilation = Compilation(kernels)
    compilation._start([key for key in kernels if find(KIND, key) is None])
    return compilation
