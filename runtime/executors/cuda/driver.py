"""The driver's calls, with errors that name the call: those of cuda.bindings return codes."""

from importlib import import_module
from typing import Any

from ....errors import EngineError
from ....extras import install_command

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class DriverError(EngineError):
    """A call of the driver failed."""


class OutOfDeviceMemory(DriverError):
    """The device has no room for what was asked for."""


class NoDriver(EngineError):
    """This machine has no NVIDIA driver, or Python no binding to it."""


def call(name: str, *arguments: Any) -> Any:
    """The value of the driver's function `name` (of several, a tuple). Raises DriverError, NoDriver."""
    try:
        found, *values = getattr(_bindings(), name)(*arguments)
    except RuntimeError:  # it looks for the driver's library when it is first called
        raise NoDriver("no NVIDIA driver (libcuda.so.1) was found; install the driver of this machine's GPU") from None
    code = int(found)
    if code == _OUT_OF_MEMORY:
        raise OutOfDeviceMemory(f"the GPU has no memory left ({name})")
    if code:
        raise DriverError(f"the GPU failed in {name}: {_describe(code)}")
    return values[0] if len(values) == 1 else tuple(values)


def attribute(name: str, device: Any) -> int:
    """A device's attribute, by its name in the driver without CU_DEVICE_ATTRIBUTE_."""
    kind = getattr(_bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call("cuDeviceGetAttribute", kind, device))


def constant(enumeration: str, name: str) -> Any:
    """A member of one of the driver's enumerations."""
    return getattr(getattr(_bindings(), enumeration), name)


def _bindings() -> Any:
    try:
        return import_module("cuda.bindings.driver")
    except ImportError:
        advice = install_command("cuda")
        raise NoDriver(f"engines for NVIDIA GPUs need cuda-bindings, which is not installed: {advice}") from None


def _describe(code: int) -> str:
    """The code's name and what the driver says of it."""
    driver = _bindings()
    try:
        _, name = driver.cuGetErrorName(driver.CUresult(code))
        _, text = driver.cuGetErrorString(driver.CUresult(code))
        return f"{name.decode()} ({code}), {text.decode()}"
    except Exception:  # a code that the binding does not know
        return f"error {code}"
