"""`enginesmith tune`: the sizes of batches and steps that serve the most under a bound of latency."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..errors import EvaluationError
from ..measure.figures import require_matplotlib
from ..measure.tune import Load, Run, Setting, Tuning, best
from ..runtime.runtime_config import RuntimeConfig
from .click_options import dataclass_fields, given, with_options
from .progress import terminal_progress
from .stream import advise, as_argument, remark
from .terminal import write_json

_TUNED = ("max_num_seqs", "max_num_tokens")
_ENGINE_FIELDS = [field for field in dataclass_fields(RuntimeConfig) if field.name not in _TUNED]
_WIDTH = 120  # where there is no terminal to ask
_POSITIVE = click.IntRange(min=1)


@click.command("tune")
@click.argument("engine", type=click.Path(path_type=Path))
@click.option(
    "--latency-p99",
    required=True,
    metavar="MS",
    type=click.FloatRange(min=0, min_open=True),
    help="The bound: milliseconds between tokens, 99th percentile.",
)
@click.option(
    "--ttft-p99",
    metavar="MS",
    type=click.FloatRange(min=0, min_open=True),
    help="Another: milliseconds to the first token, 99th percentile; for a --rate that the engine sustains.",
)
@click.option("--requests", type=_POSITIVE, default=64, show_default=True, help="Requests in a run.")
@click.option("--prompt-tokens", type=_POSITIVE, default=256, show_default=True, help="Tokens of a prompt, on average.")
@click.option("--output-tokens", type=_POSITIVE, default=64, show_default=True, help="Tokens of an output, on average.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Requests a second that arrive; default: twice what the engine sustains.",
)
@click.option("--repetitions", type=_POSITIVE, default=3, show_default=True, help="Runs of each setting.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    help="Seconds after which it ends with the runs that it has.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the settings as a PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@with_options(_ENGINE_FIELDS)
def command(
    engine: Path,
    latency_p99: float,
    ttft_p99: float | None,
    requests: int,
    prompt_tokens: int,
    output_tokens: int,
    rate: float | None,
    repetitions: int,
    time_limit: float,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the batch and step sizes with which ENGINE serves the most tokens, within a bound of latency.

    Random prompts arrive at random instants, the same ones for every setting. Ctrl-C ends it with the runs that it has.
    """
    if plot is not None:
        require_matplotlib()  # an error now rather than after minutes
    load = Load(requests=requests, prompt_tokens=prompt_tokens, output_tokens=output_tokens, rate=rate)
    tuning = Tuning(engine, load, RuntimeConfig(**given(options)))
    remark(f"at most {time_limit:g} s; Ctrl-C ends it with the runs that it has")
    start = time.monotonic()
    interrupted = False
    try:
        tuning.measure(repetitions, time_limit, terminal_progress())
    except KeyboardInterrupt:
        if not tuning.runs:
            raise
        interrupted = True
    medians = tuning.medians()
    if not medians:
        raise EvaluationError(f"no run was done within {time_limit:g} s: raise --time-limit, or lower --requests")
    chosen = best(medians, latency_p99 / 1e3, None if ttft_p99 is None else ttft_p99 / 1e3)
    if as_json:
        _write_json(engine, tuning, medians, chosen)
    else:
        _show(tuning, medians, chosen, time.monotonic() - start)
    if plot is not None:
        from ..measure.tune_chart import draw

        draw(medians, latency_p99 / 1e3, chosen, plot, f"{engine.name}, {tuning.rate:.2g} requests/s")
    _advise(engine, medians, chosen, latency_p99, given(options))
    if interrupted:
        raise KeyboardInterrupt


def _show(tuning: Tuning, medians: Mapping[Setting, Run], chosen: Setting | None, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{tuning.rate:.3g} requests/s, medians of the runs, {seconds:.0f} s in all"
    table = Table(title=title, title_justify="left")
    names = ("max-num-seqs", "max-num-tokens", "tokens/s", "between tokens ms (p99)", "TTFT ms (p99)", "runs", "")
    for name in names:
        table.add_column(name, justify="right")
    for setting, run in medians.items():
        table.add_row(
            str(setting.max_num_seqs),
            str(setting.max_num_tokens),
            f"{run.throughput:.1f}",
            f"{run.between_p50 * 1e3:.1f} ({run.between_p99 * 1e3:.1f})",
            f"{run.ttft_p50 * 1e3:.0f} ({run.ttft_p99 * 1e3:.0f})",
            str(len(tuning.runs[setting])),
            "best" if setting == chosen else "",
            style="bold" if setting == chosen else None,
        )
    console = Console()
    Console(width=None if console.is_terminal else _WIDTH).print(table)


def _write_json(engine: Path, tuning: Tuning, medians: Mapping[Setting, Run], chosen: Setting | None) -> None:
    settings = [
        setting._asdict() | _as_json(run) | {"runs": [_as_json(one) for one in tuning.runs[setting]]}
        for setting, run in medians.items()
    ]
    best_setting = None if chosen is None else chosen._asdict()
    write_json({"engine": str(engine), "rate_per_s": tuning.rate, "settings": settings, "best": best_setting}, indent=2)


def _as_json(run: Run) -> dict[str, Any]:
    return {
        "tokens_per_s": run.throughput,
        "time_between_tokens_s": {"median": run.between_p50, "p99": run.between_p99},
        "ttft_s": {"median": run.ttft_p50, "p99": run.ttft_p99},
    }


def _advise(
    engine: Path, medians: Mapping[Setting, Run], chosen: Setting | None, latency_p99: float, options: dict[str, Any]
) -> None:
    """The options of `serve`. Raises EvaluationError when no setting is under the bound."""
    if chosen is None:
        fastest = min(medians, key=lambda setting: medians[setting].between_p99)
        run = medians[fastest]
        raise EvaluationError(
            f"no setting keeps the bounds (--latency-p99 {latency_p99:g}): the shortest time between tokens is "
            f"{run.between_p99 * 1e3:.1f} ms, with {run.ttft_p99 * 1e3:.0f} ms to the first token, by --max-num-seqs "
            f"{fastest.max_num_seqs} --max-num-tokens {fastest.max_num_tokens}; allow more, or send less"
        )
    words = []
    for name, value in (chosen._asdict() | options).items():
        flag = name.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    advise("enginesmith", "serve", as_argument(engine), *words)
