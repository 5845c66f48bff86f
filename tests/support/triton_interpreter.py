"""Triton's interpreter within a process that also compiles: kernels of triton.jit run on memory of the host.

What triton 3.9's interpreter does otherwise than a GPU is set right: its casts to bf16 and FP8 do not round to nearest
even (and FP8 does not saturate), its dot products multiply the bits of bf16 and add up in an order that depends on the
shapes, and a scalar comparison of integers that becomes a block is no truth value.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

_NUMPY = {
    tl.float32: np.dtype(np.float32),
    tl.float64: np.dtype(np.float64),
    tl.float16: np.dtype(np.float16),
    tl.bfloat16: np.dtype(ml_dtypes.bfloat16),
    tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
    tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
}
ON_DEVICE = False
"""Whether kernels run on this machine's GPU instead."""
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def interpret(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
    """`kernel[grid](*arguments, **named)`; pointers are tensors of torch, or `Pointer`.

    With `pytest -m gpu` on the GPU, where arguments are no addresses of the host.
    """
    if not all(grid):
        return
    if ON_DEVICE:
        _run_on_device(kernel, grid, dict(zip(kernel.arg_names, arguments, strict=False)) | named)
        return
    with interpreted():
        function = interpreter.InterpretedFunction(kernel.fn)
        executor = interpreter.GridExecutor(function.rewrite(), function.arg_names, tuple(grid))
        with np.errstate(all="ignore"):
            executor(*arguments, **named)


def _run_on_device(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
    import device_kernels
    import pytest

    if any(isinstance(value, Pointer) for value in arguments.values()):
        pytest.skip("it runs on addresses of the host")
    device_kernels.run(kernel, grid, arguments)


class Pointer:
    """An address as a kernel's argument; `dtype` as Triton names it, without the star."""

    def __init__(self, address: int, dtype: str) -> None:
        self._address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self._address


@contextmanager
def interpreted() -> Iterator[None]:
    """Triton's language interprets, until this ends; one thread at a time."""
    scope = interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))  # type: ignore
    builder, options = interpreter.InterpreterBuilder, interpreter.interpreter_builder.options
    replaced = [
        (JITFunction, "__call__", _call),
        (interpreter, "_patch_lang", lambda function: _Nothing()),
        (interpreter, "_convert_float", _convert),
        (interpreter, "_implicit_cvt", _argument(interpreter._implicit_cvt)),
        (interpreter.GridExecutor, "_init_args_hst", lambda self, arguments, named: (arguments, named)),
        (interpreter.GridExecutor, "_restore_args_dev", lambda self, *arguments: None),
        (interpreter.interpreter_builder, "options", replace(options, sanitize_overflow=False)),  # in half the time
        (builder, "create_dot", _dot),
        (builder, "create_splat", _splat),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        scope.restore()


class _Nothing:
    def restore(self) -> None:
        pass


def _call(self: Any, *arguments: Any, **named: Any) -> Any:
    return interpreter.InterpretedFunction(self.fn).rewrite()(*arguments, **named)


def _argument(plain: Any) -> Any:
    def convert(value: Any) -> Any:
        if not isinstance(value, Pointer):
            return plain(value)
        kind: Any = tl.str_to_ty("*" + value.dtype, None)
        return tl.tensor(interpreter.TensorHandle(np.array([value.data_ptr()], np.uint64), kind), kind)

    return convert


def _convert(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """Bits of floats, as an unsigned type, to the bits of floats of another type."""
    values = np.ascontiguousarray(data).view(_NUMPY[source])
    wide = values.astype(np.float64 if source is tl.float64 else np.float32)
    if target in (tl.float8e4nv, tl.float8e5):
        limit = float(ml_dtypes.finfo(_NUMPY[target]).max)
        wide = np.clip(wide, -limit, limit)  # what is past the largest becomes the largest; NaN stays
    with np.errstate(over="ignore"):
        return wide.astype(_NUMPY[target]).view(_BITS[_NUMPY[target].itemsize]).reshape(data.shape)


def _dot(_: Any, a: Any, b: Any, d: Any, precision: Any, limit: Any) -> Any:
    """a b + d. Sums are made in float64, where those of bf16 products are exact, so that no order shows."""
    product = np.matmul(_wide(a), _wide(b)).astype(d.data.dtype)
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def _splat(_: Any, block: Any, scalar: Any) -> Any:
    return interpreter.TensorHandle(np.full(block.shape, scalar.data), scalar.dtype.scalar)


def _wide(handle: Any) -> np.ndarray:
    kind = handle.dtype.scalar
    values = np.ascontiguousarray(handle.data).view(_NUMPY[kind]) if kind in _NUMPY else handle.data
    return values.astype(np.float64)
