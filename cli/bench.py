"""`enginesmith bench`: the workloads, as a table and as JSON."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import BuildError, RequestError, ToolchainError
from ..measure.shares import Share, Yardstick
from ..measure.workloads import USUAL_WORKLOADS, Measurement, Workload, measure, median_run, require_room
from ..runtime.llm import LLM
from ..runtime.runtime_config import RuntimeConfig
from ..runtime.threads import physical_cores
from .click_options import dataclass_fields, runtime_config, with_options
from .progress import terminal_progress
from .stream import remark
from .terminal import write_json

_WIDTH = 120  # where there is no terminal to ask


@dataclass(frozen=True)
class Line:
    """The median run of a workload, and its shares of this machine's ceilings where those are known."""

    run: Measurement
    rates: tuple[float, ...]
    read: Share | None
    compute: Share | None


@click.command("bench")
@click.argument("engine", type=click.Path(path_type=Path))
@click.option(
    "-w",
    "--workload",
    "names",
    multiple=True,
    type=click.Choice([w.value for w in Workload]),
    help="Default: those of w1, w2 and w3 that fit.",
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Timed runs of each workload.")
@with_options(dataclass_fields(RuntimeConfig))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def command(engine: Path, names: tuple[str, ...], runs: int, as_json: bool, **options: Any) -> None:
    """Measure ENGINE: greedy, end of sequence ignored, fresh random token ids in every run.

    W1: prompt 128, 128 new tokens, one stream. W2: prompt 1024, 1 new token. W3: 32 requests, 16 at once.
    W4: prompt 4096, 64 new tokens, one stream. W5: 64 requests of 64 and 64 tokens, all at once.
    """
    run_bench(engine, names, runs=runs, config=runtime_config(options), as_json=as_json)


def run_bench(
    engine: Path,
    names: Sequence[str],
    *,
    runs: int,
    config: RuntimeConfig,
    as_json: bool,
) -> None:
    """Measure the workloads named, or the usual ones that the engine is large enough for, and show what came of it."""
    threads = config.threads or physical_cores()
    progress = terminal_progress()
    with LLM(engine, config) as llm:
        workloads = _chosen(llm, names)
        yardstick = _yardstick(engine, llm, threads)
        measured = []
        for workload in workloads:
            if yardstick:
                yardstick.calibrate()
            measured.append(measure(llm, workload, runs, progress))
        lines = [_line(runs_measured, yardstick) for runs_measured in measured]
    if as_json:
        facts = {"engine": str(engine), "threads": threads, "load_average": os.getloadavg()[0]}
        write_json(facts | {"workloads": {line.run.workload: _as_json(line) for line in lines}}, indent=2)
    else:
        _show(lines, threads)


def _line(runs: Sequence[Measurement], yardstick: Yardstick | None) -> Line:
    run = median_run(runs)
    return Line(
        run,
        tuple(m.tokens_per_second for m in runs),
        yardstick.read(run) if yardstick else None,
        yardstick.compute(run) if yardstick else None,
    )


def _chosen(llm: LLM, names: Sequence[str]) -> list[Workload]:
    """The workloads asked for, or the usual ones that the engine is large enough for."""
    if names:
        return [Workload(name) for name in names]
    fitting = []
    for workload in USUAL_WORKLOADS:
        try:
            require_room(llm, workload)
            fitting.append(workload)
        except RequestError as error:
            remark(str(error))
    if not fitting:
        raise RequestError("this engine is too small for every workload: see above")
    return fitting


def _yardstick(engine: Path, llm: LLM, threads: int) -> Yardstick | None:
    from ..builder.targets.registry import target_named

    try:
        ceilings = target_named(llm.manifest.target.name).ceilings(llm.manifest)
        return Yardstick(engine, llm.manifest, ceilings, threads)
    except ToolchainError:
        remark("no shares of this machine's ceilings: measuring those needs a C++ compiler")
        return None
    except BuildError as error:  # the target measures none
        remark(f"no shares of this machine's ceilings: {error}")
        return None


def _as_json(line: Line) -> dict[str, Any]:
    run = line.run
    data: dict[str, Any] = {
        "tokens_per_s": run.tokens_per_second,
        "runs_tokens_per_s": line.rates,
        "wall_s": run.wall,
        "prompt_tokens": run.prompt_tokens,
        "output_tokens": run.output_tokens,
        "ttft_s": _median_and_p99(run.ttfts),
        "time_between_tokens_s": _median_and_p99(run.intervals),
    }
    for name, share in (("read", line.read), ("compute", line.compute)):
        if share is not None:
            data[name] = {
                "of": share.kind,
                "achieved_per_s": share.achieved,
                "ceiling_per_s": share.ceiling,
                "share": share.share,
            }
    return data


def _median_and_p99(values: tuple[float, ...]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]}


def _show(lines: list[Line], threads: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{threads} threads, median of {len(lines[0].rates)} runs", title_justify="left")
    for name in ("workload", "tokens/s", "TTFT ms", "between tokens ms (p99)", "of this machine's best"):
        table.add_column(name, justify="left" if name == "workload" else "right", overflow="fold")
    for line in lines:
        ttft, between = _median_and_p99(line.run.ttfts), _median_and_p99(line.run.intervals)
        table.add_row(
            line.run.workload.summary.partition(":")[0],
            f"{line.run.tokens_per_second:.1f}",
            f"{ttft['median'] * 1e3:.1f}" if ttft else "",
            f"{between['median'] * 1e3:.2f} ({between['p99'] * 1e3:.2f})" if between else "",
            _share(line),
        )
    console = Console()
    Console(width=None if console.is_terminal else _WIDTH).print(table)


def _share(line: Line) -> str:
    parts = []
    if line.read:
        parts.append(f"{line.read.share:.0%}: {line.read.achieved / 1e9:.1f} GB/s, {line.read.kind}")
    if line.compute:
        parts.append(f"{line.compute.share:.0%}: {line.compute.achieved / 1e9:.0f} GOP/s, {line.compute.kind}")
    return "\n".join(parts)
