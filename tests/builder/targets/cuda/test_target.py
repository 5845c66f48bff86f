"""Which compute capability is compiled for, and what this machine is said to lack."""

import re
from collections.abc import Callable

import pytest

from enginesmith.builder.targets.cuda import target
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.builder.targets.cuda.segments import tensorrt
from enginesmith.builder.targets.cuda.target import TARGET, choose_sm
from enginesmith.errors import BuildError, ToolchainError
from enginesmith.extras import install_command
from enginesmith.runtime.executors.cuda.device import Device
from enginesmith.runtime.executors.cuda.driver import NoDriver

Machine = Callable[[int | None], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """`machine(sm)`: this machine has a GPU of that compute capability, or none."""

    def become(sm: int | None) -> None:
        def find() -> Device:
            if sm is None:
                raise NoDriver("no NVIDIA driver was found")
            return Device(None, "A GPU", sm, 24 << 30, 13010)

        monkeypatch.setattr(target, "find_device", find)

    return become


@pytest.mark.parametrize(("here", "asked", "runs_here", "sm"), [
    (90, "native", True, 90), (90, "90", True, 90), (90, "80", False, 80), (None, "120", False, 120),
])  # fmt: skip
def test_the_compute_capability_is_the_one_named_or_this_machines(
    machine: Machine, here: int | None, asked: str, runs_here: bool, sm: int
):
    machine(here)
    assert choose_sm(CudaOptions(sm=asked), runs_here=runs_here) == sm  # type: ignore[arg-type]


@pytest.mark.parametrize(("here", "asked", "runs_here", "message"), [
    (None, "native", False, "there is no GPU here .*name one with --sm: 80, 86, 89, 90, 100, 120"),
    (None, "90", True, "cannot be checked here: no NVIDIA driver was found; add --no-check"),
    (75, "native", True, r"A GPU has compute capability 7\.5; kernels are compiled for 80"),
    (90, "80", True, "--sm 80 was asked for, but A GPU has 90.*add --no-check"),
])  # fmt: skip
def test_what_cannot_be_built_is_said(machine: Machine, here: int | None, asked: str, runs_here: bool, message: str):
    machine(here)
    with pytest.raises(BuildError, match=message):
        choose_sm(CudaOptions(sm=asked), runs_here=runs_here)  # type: ignore[arg-type]


def test_without_triton_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, machine: Machine):
    machine(None)
    monkeypatch.setattr(target, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="Triton, .* not installed: " + re.escape(install_command("cuda-build"))):
        TARGET.check_host(CudaOptions(sm="90"), runs_here=False)
    assert [(finding.name, finding.ok, finding.needed_to) for finding in TARGET.findings()] == [
        ("GPU", False, "run"),
        ("Triton", False, "build"),
        ("TensorRT", True, None),
    ]


def test_auto_is_triton_where_no_tensorrt_builds(monkeypatch: pytest.MonkeyPatch, machine: Machine):
    machine(None)
    monkeypatch.setattr(tensorrt, "find_spec", lambda name: None)
    host = TARGET.check_host(CudaOptions(sm="90", dense="auto"), runs_here=False)
    assert host.tensorrt is None
    with pytest.raises(ToolchainError, match="--dense tensorrt needs TensorRT"):
        TARGET.check_host(CudaOptions(sm="90", dense="tensorrt"), runs_here=False)


def test_a_machine_with_all(machine: Machine):
    machine(89)
    gpu, triton, _ = TARGET.findings()
    assert gpu.value == "A GPU, compute capability 8.9, 25.8 GB, driver for CUDA 13.1"
    assert "sm_100" in triton.value
    assert TARGET.machine() == "sm_89"
    assert TARGET.check_host(CudaOptions(), runs_here=True).title == "cuda sm_89"
