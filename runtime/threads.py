"""How many threads a CPU engine should use here."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


def physical_cores(cpus: Path = _CPUS, cgroup: Path = _CGROUP) -> int:
    """Physical cores available to this process: its affinity, hyper-threads counted once, within its CPU quota.

    `cpus` and `cgroup` are where Linux describes them; tests pass their own. At least 1.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core(cpus, cpu) for cpu in allowed}
    quota = cpu_quota(cgroup)
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def _core(cpus: Path, cpu: int) -> str:
    """A name shared by the hyper-threads of one core."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        try:
            return (cpus / f"cpu{cpu}" / "topology" / name).read_text().strip()
        except OSError:
            continue
    return str(cpu)


def cpu_quota(cgroup: Path = _CGROUP) -> float | None:
    """CPUs' worth of time that the cgroup may use (version 2 or 1), or None when it is not limited."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit = int((cgroup / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((cgroup / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return limit / period if limit > 0 and period > 0 else None
