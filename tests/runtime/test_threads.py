"""Cores and memory as Linux describes them, in made-up folders."""

import os
from pathlib import Path

import pytest

from enginesmith.runtime.memory import available_memory
from enginesmith.runtime.threads import cpu_quota, physical_cores


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight hyper-threads of four cores, all of them allowed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_cpus_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def quota_v2(tmp_path: Path, text: str) -> Path:
    group = tmp_path / "cgroup2"
    group.mkdir()
    (group / "cpu.max").write_text(text)
    return group


def test_hyper_threads_count_once(cpus: Path, tmp_path: Path):
    assert physical_cores(cpus, tmp_path / "none") == 4


def test_affinity(cpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 5, 6})
    assert physical_cores(cpus, tmp_path / "none") == 2


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", 4), ("200000 100000\n", 2), ("50000 100000", 1), ("950000 100000", 4)]
)
def test_quota(cpus: Path, tmp_path: Path, text: str, cores: int):
    assert physical_cores(cpus, quota_v2(tmp_path, text)) == cores


def test_quota_of_version_1(tmp_path: Path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(tmp_path) is None
    assert cpu_quota(tmp_path / "none") is None


def test_without_a_topology_every_cpu_is_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert physical_cores(tmp_path, tmp_path) == 3


def test_memory(tmp_path: Path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       9000 kB\nMemAvailable:   4000 kB\n")
    assert available_memory(meminfo, tmp_path) == 4000 * 1024
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available_memory(meminfo, tmp_path) == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(meminfo, tmp_path) == 4000 * 1024
