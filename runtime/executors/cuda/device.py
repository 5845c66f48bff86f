"""The GPU that an engine runs on: CUDA_VISIBLE_DEVICES says which are seen, and the first of them is taken."""

from dataclasses import dataclass
from typing import Any

from .driver import NoDriver, attribute, call


@dataclass(frozen=True)
class Device:
    """A GPU. `sm`: its compute capability, 90 for 9.0; `driver`: the CUDA that its driver knows, 13000 for 13.0."""

    handle: Any
    name: str
    sm: int
    memory: int
    driver: int

    @property
    def shown_driver(self) -> str:
        return shown_version(self.driver)


def shown_version(version: int) -> str:
    """13040 as "13.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def find_device() -> Device:
    """The first GPU. Raises NoDriver where there is no driver or no GPU, DriverError where it does not answer."""
    call("cuInit", 0)
    if not call("cuDeviceGetCount"):
        raise NoDriver("the NVIDIA driver sees no GPU: nvidia-smi lists them, CUDA_VISIBLE_DEVICES may hide them")
    handle = call("cuDeviceGet", 0)
    major, minor = (attribute(f"COMPUTE_CAPABILITY_{part}", handle) for part in ("MAJOR", "MINOR"))
    name = call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode(errors="replace")
    memory = int(call("cuDeviceTotalMem", handle))
    return Device(handle, name, 10 * major + minor, memory, int(call("cuDriverGetVersion")))
