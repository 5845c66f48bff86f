"""A GPU that is none: cuda.bindings finds the driver of emulated_cuda.c, and Triton's interpreter runs the launches.

Engines for it hold, instead of a cubin, the name of a kernel's function and its types and constants.
"""

import ctypes
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from triton_interpreter import Pointer, interpret

from enginesmith.builder.targets.cpu.toolchain import find_compiler
from enginesmith.builder.targets.cuda import compile as compilation
from enginesmith.builder.targets.cuda.source.generated import load_module
from enginesmith.builder.targets.cuda.specialize import Specialization
from enginesmith.kept import find, keep

SOURCE = Path(__file__).with_name("emulated_cuda.c")
OUT_OF_MEMORY, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 700, 719
_SCRATCH = 2


class EmulatedGpu:
    """The driver of this process, from when it is made. One at a time."""

    def __init__(self, folder: Path) -> None:
        library = folder / "libcuda.so.1"
        command = [*find_compiler().command, "-x", "c", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run([*command, str(SOURCE), "-o", str(library), "-ldl"], check=True)
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        for name in ("calls", "launches", "graphs"):
            getattr(self._library, f"emulated_{name}").restype = ctypes.c_long
        self._kernels: dict[bytes, tuple[Any, dict[str, Any]]] = {}
        self.error: BaseException | None = None
        self.others: dict[bytes, tuple[int, Callable[[list[int]], None]]] = {}
        """Images that are no kernels of Triton's: how many parameters they have, and what runs them on the values."""
        self.watch: Callable[[], None] | None = None  # called as a launch runs
        self.milliseconds: Callable[[dict[str, Any]], float] | None = None
        """Of a launch, by what its kernel was specialised for; then nothing is computed. Else nothing takes time."""
        launch = ctypes.CFUNCTYPE(
            ctypes.c_double, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint,
            ctypes.POINTER(ctypes.c_uint64),
        )  # fmt: skip
        count = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
        self._hooks = launch(self._launch), count(self._count)
        self._library.emulated_hooks(*self._hooks)

    def reset(
        self, sm: int = 90, devices: int = 1, driver: int = 13040, memory: int = 8 << 30, fill: int = 0xFF
    ) -> None:
        """A device of that compute capability and memory, which holds `fill` at first; nothing fails."""
        self._library.emulated_fresh(fill)
        self._library.emulated_device(sm, devices, driver, ctypes.c_size_t(memory))
        self.watch = self.milliseconds = None
        self.fail(0, 0)

    def fail(self, at: int, error: int) -> None:
        """The `at`-th call from now on fails with the driver's error; 0: none."""
        self._library.emulated_fail(ctypes.c_long(at), error)

    @property
    def calls(self) -> int:
        """Calls since `fail`."""
        return self._library.emulated_calls()

    @property
    def launches(self) -> int:
        return self._library.emulated_launches()

    @property
    def graphs(self) -> int:
        """Graphs launched so far."""
        return self._library.emulated_graphs()

    @property
    def held(self) -> int:
        """Memories, contexts, streams, modules and graphs that were taken, and not given back."""
        return self._library.emulated_held()

    def _kernel(self, image: bytes) -> tuple[Any, dict[str, Any]]:
        if image not in self._kernels:
            job = json.loads(image)
            module = load_module(Path(job["file"])) if job["file"] else import_module(job["module"])
            self._kernels[image] = getattr(module, job["function"]), job
        return self._kernels[image]

    def _count(self, image: bytes) -> int:
        if image in self.others:
            return self.others[image][0]
        _, job = self._kernel(image)
        return sum(kind != "constexpr" for kind in job["signature"].values()) + _SCRATCH

    def _launch(self, image: bytes, entry: bytes, grid: Any, threads: int, values: Any) -> float:
        if image in self.others:
            number, run = self.others[image]
            run(values[:number])
            return 0.0
        kernel, job = self._kernel(image)
        assert entry.decode() == job["function"]
        assert threads == 32 * job["num_warps"]
        if self.milliseconds is not None:
            return self.milliseconds(job)
        named, number = {}, 0
        for name, kind in job["signature"].items():
            if kind == "constexpr":
                named[name] = job["constants"][name]
                continue
            value = values[number]
            named[name] = ctypes.c_int32(value & 0xFFFFFFFF).value if kind == "i32" else Pointer(value, kind[1:])
            number += 1
        try:
            if self.watch:
                self.watch()
            interpret(kernel, (grid[0], grid[1], grid[2]), **named)
        except BaseException as error:
            self.error = error
            raise
        return 0.0


def stand_in(kernels: Mapping[str, Specialization]) -> compilation.Compilation:
    """In place of `compile.start_compiling`: what the emulated driver takes for cubins."""
    for key, kernel in kernels.items():
        if find(compilation.KIND, key) is not None:
            continue
        job = compilation.job_of(kernel)
        facts = {"entry": job["function"], "threads": 32 * kernel.num_warps, "shared": 0, "registers": 0, "local": 0}

        def fill(folder: Path, job: dict[str, Any] = job, facts: dict[str, Any] = facts) -> None:
            (folder / compilation.CUBIN).write_text(json.dumps(job) + "\0")
            (folder / compilation.FACTS).write_text(json.dumps(facts))

        keep(compilation.KIND, key, fill)
    return compilation.Compilation(kernels)


@contextmanager
def stand_in_compiler() -> Iterator[None]:
    """Engines for the cuda target are built for the emulated driver until this ends."""
    with pytest.MonkeyPatch.context() as patch:
        from enginesmith.builder.targets.cuda import plan

        patch.setattr(plan, "start_compiling", stand_in)
        patch.setattr(plan, "compiler_name", lambda: "stand-in")
        yield
