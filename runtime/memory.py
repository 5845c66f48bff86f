"""How much memory this process may take."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that could be used without swapping, within the cgroup's limit (version 2 or 1)."""
    available = _meminfo(meminfo, "MemAvailable")
    for limit_name, usage_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, usage = _integer(cgroup / limit_name), _integer(cgroup / usage_name)
        if limit is not None and usage is not None:
            return max(0, min(available, limit - usage))
    return available


def total_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes of the machine, within the cgroup's limit (version 2 or 1)."""
    limits = (_integer(cgroup / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([_meminfo(meminfo, "MemTotal"), *(limit for limit in limits if limit is not None)])


def _meminfo(meminfo: Path, name: str) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _integer(path: Path) -> int | None:
    """The number in a file, or None when there is no file or it says "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
