"""`enginesmith doctor`: what this machine has, what it can do at best, and what is missing."""

import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from ..builder.targets.options import TARGETS
from ..builder.targets.registry import target_named
from ..builder.targets.target import Finding
from ..cache import VARIABLE, cache_dir, cache_root
from ..errors import BuildError, CacheError, ToolchainError
from ..extras import install_command
from ..runtime.memory import available_memory
from ..runtime.threads import cpu_quota, physical_cores
from ..units import shown_size
from .main import EXTRAS
from .progress import terminal_progress
from .terminal import say, say_marked, write_json

_RUNTIME = ("numpy", "tokenizers", "jinja2", "pydantic")
_LEAST_MEMORY = 2 << 30
_PROBE_BYTES = 1 << 30


@click.command("doctor")
@click.option("--measure/--no-measure", default=True, help="Measure memory bandwidth and arithmetic peaks (seconds).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(measure: bool, as_json: bool) -> None:
    """Check this machine: compiler, instruction sets, cores, memory, libraries, bandwidth and peaks."""
    findings = [*_machine(), *_software()]
    is_well = all(finding.ok for finding in findings)
    runs = False
    for target in TARGETS:
        findings += _target(target)
        runs |= findings[-1].ok
        if measure:
            findings += _measured(target)
    if as_json:
        facts = [{key: value for key, value in asdict(f).items() if key != "needed_to"} for f in findings]
        write_json({"ok": is_well and runs, "findings": facts}, indent=2)
        return
    _show(findings)


def _machine() -> Iterator[Finding]:
    yield Finding(
        "system", f"{platform.system()} {platform.machine()}, {_cpu_model()}, Python {platform.python_version()}"
    )
    quota = cpu_quota()
    allowed = len(os.sched_getaffinity(0))
    limits = f"{allowed} CPUs allowed, " + ("no CPU quota" if quota is None else f"a quota of {quota:g} CPUs")
    yield Finding("cores", f"{physical_cores()} physical available ({limits}); threads default to {physical_cores()}")
    memory = available_memory()
    short = (
        "" if memory >= _LEAST_MEMORY else "building a 1B model takes about 2 GB; free some memory or raise the limit"
    )
    yield Finding("memory", f"{shown_size(memory)} available", not short, short)
    yield _cache()


def _cache() -> Finding:
    try:
        folder = cache_dir("objects").parent
    except CacheError as error:
        return Finding("cache", str(cache_root()), False, str(error))
    free = shutil.disk_usage(folder).free
    small = "" if free >= _LEAST_MEMORY else f"free some space, or point {VARIABLE} elsewhere"
    return Finding("cache", f"{folder}, {shown_size(free)} free", not small, small)


def _software() -> Iterator[Finding]:
    yield Finding("runtime libraries", _versions(_RUNTIME))
    missing = _missing()
    advice = f"to build engines: {install_command('build')} (missing: {', '.join(missing)})" if missing else ""
    yield Finding("build libraries", _versions(sorted(EXTRAS["build"])) or "none", not missing, advice)


def _target(name: str) -> Iterator[Finding]:
    """What a target needs, and what it can do with that."""
    findings = list(target_named(name).findings())
    yield from findings
    lacking = {finding.needed_to for finding in findings if not finding.ok}
    runs = "run" not in lacking
    builds = "build" not in lacking and not _missing()
    can = f"{'runs' if runs else 'cannot run'} engines, {'builds' if builds else 'cannot build'} them"
    yield Finding(f"target {name}", can, runs)


def _measured(name: str) -> Iterator[Finding]:
    threads = physical_cores()
    try:
        ceilings = target_named(name).ceilings()
        with terminal_progress().task("Measuring bandwidth and peaks", len(ceilings.instructions) + 1) as task:
            bandwidth = ceilings.read_bandwidth(min(_PROBE_BYTES, available_memory() // 4), threads)
            task.advance()
            peaks = {}
            for instruction in ceilings.instructions:
                peaks[instruction] = ceilings.peak(instruction, threads)
                task.advance()
    except ToolchainError:
        yield Finding("memory read", "not measured: that needs a C++ compiler")
        return
    except BuildError:  # the target does not run here
        return
    yield Finding("memory read", f"{bandwidth / 1e9:.1f} GB/s with {threads} threads")
    for instruction, peak in peaks.items():
        if peak:
            yield Finding(instruction, f"{peak / 1e9:.0f} GOP/s with {threads} threads")


def _show(findings: list[Finding]) -> None:
    width = max(len(f.name) for f in findings)
    for finding in findings:
        mark = click.style("ok  ", fg="green") if finding.ok else click.style("warn", fg="yellow")
        say_marked(mark, f" {finding.name:<{width}}  {finding.value}")
        if finding.advice:
            say(f"{'':<{width + 8}}{finding.advice}")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown CPU"
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def _missing() -> list[str]:
    return [name for name in sorted(EXTRAS["build"]) if _version(name) is None]


def _versions(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {found}" for name in names if (found := _version(name)))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
