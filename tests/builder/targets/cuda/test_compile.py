"""Kernels become cubins on a machine without a GPU."""

import json
from pathlib import Path

import pytest

from enginesmith.builder.targets.cuda.compile import CUBIN, FACTS, compiler_name, start_compiling
from enginesmith.builder.targets.cuda.source.generated import kernel_of
from enginesmith.builder.targets.cuda.specialize import Specialization
from enginesmith.errors import ToolchainError

DOUBLE = """
@triton.jit
def double(p0, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p0 + i, tl.load(p0 + i, mask=i < count) * 2, mask=i < count)
"""
SIGNATURE = {"p0": "*fp32", "count": "i32", "BLOCK": "constexpr"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    kernel_of.cache_clear()


def specialized(sm: int, source: str = DOUBLE) -> Specialization:
    return Specialization(kernel_of(source, "double"), SIGNATURE, {"BLOCK": 256}, (0,), 4, 2, sm)


def test_a_kernel_is_compiled_once_for_each_compute_capability():
    kernels = {str(sm): specialized(sm) for sm in (80, 120)}
    kernels = {kernel.key(compiler_name()): kernel for kernel in kernels.values()}
    first = start_compiling(kernels)
    folders = first.wait()
    assert not first.cached
    assert len(folders) == 2
    for folder in folders.values():
        facts = json.loads((folder / FACTS).read_text())
        assert facts["entry"] == "double"
        assert facts["threads"] == 128
        assert 8 <= facts["registers"] <= 64
        assert facts["local"] == facts["shared"] == 0
        assert (folder / CUBIN).read_bytes().startswith(b"\x7fELF")
    second = start_compiling(kernels)
    assert second.cached
    assert second.wait() == folders


def test_what_the_compiler_refuses_is_named():
    kernel = specialized(90, DOUBLE.replace("* 2", "* missing"))
    with pytest.raises(ToolchainError, match=r"(?s)could not compile .*:double for sm_90: .*missing"):
        start_compiling({"key": kernel}).wait()
