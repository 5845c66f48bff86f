"""The ctypes mirror against the header itself."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from enginesmith.runtime.executors import cpu_abi as abi
from enginesmith.runtime.executors import sampler_abi as sampler_abi

PLUGINS = Path(__file__).parents[3] / "plugins"
MIRRORS = {"cpu/abi.h": [abi.EsOpenArgs, abi.EsStep], "sampling/cpu/abi.h": [sampler_abi.EsSample]}


@pytest.mark.parametrize(("header", "mirrors"), MIRRORS.items())
def test_structures_lie_as_in_the_header(tmp_path: Path, header: str, mirrors: list[type[ctypes.Structure]]):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    lines = [f'#include "{PLUGINS / header}"', "#include <cstddef>", "#include <cstdio>", "int main() {"]
    expected = [f"version {abi.ABI_VERSION}"]
    lines.append('std::printf("version %u\\n", kEsAbiVersion);')
    for mirror in mirrors:
        name = mirror.__name__
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(mirror)}")
        for field, *_ in mirror._fields_:
            lines.append(f'std::printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{name}.{field} {getattr(mirror, field).offset}")
    source, program = tmp_path / "offsets.cpp", tmp_path / "offsets"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run([compiler, "-std=c++17", f"-I{PLUGINS}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines() == expected


@pytest.mark.parametrize(("header", "mirror"), [(h, mirror) for h, mirrors in MIRRORS.items() for mirror in mirrors])
def test_no_field_is_forgotten(header: str, mirror: type[ctypes.Structure]):
    body = re.search(rf"struct {mirror.__name__} \{{(.*?)\}};", (PLUGINS / header).read_text(), re.DOTALL)
    assert body is not None
    declared = re.findall(r"^\s*[\w\s*]+?(\w+);", body[1], re.MULTILINE)
    assert declared == [field for field, *_ in mirror._fields_]
