"""A picture of a tuning: throughput over the 99th percentile of the time between tokens."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from .figures import require_matplotlib, save_figure
from .tune import Run, Setting

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # Okabe and Ito's
_MARKERS = ("o", "s", "^", "D")


def draw(medians: Mapping[Setting, Run], bound: float, chosen: Setting | None, path: Path, title: str) -> None:
    """Write a PNG: a line for each step size, whose points are batch sizes; `bound` in seconds, `chosen` is ringed.

    Raises EvaluationError where matplotlib is missing or the file cannot be written.
    """
    figure = require_matplotlib()(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    steps = sorted({setting.max_num_tokens for setting in medians}, reverse=True)
    for index, step in enumerate(steps):
        points = sorted((setting, run) for setting, run in medians.items() if setting.max_num_tokens == step)
        axes.plot(
            [1e3 * run.between_p99 for _, run in points],
            [run.throughput for _, run in points],
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=5,
            linewidth=1.2,
            label=f"--max-num-tokens {step}",
        )
        for setting, run in points:
            axes.annotate(
                str(setting.max_num_seqs),
                (1e3 * run.between_p99, run.throughput),
                xytext=(0, 6),
                textcoords="offset points",
                horizontalalignment="center",
                fontsize=8,
            )
    axes.axvline(1e3 * bound, color="#555", linestyle="--", linewidth=1)
    axes.annotate(
        f"bound {1e3 * bound:g} ms",
        (1e3 * bound, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, -11),
        textcoords="offset points",
        fontsize=8,
        color="#555",
    )
    if chosen is not None:
        run = medians[chosen]
        axes.plot(
            [1e3 * run.between_p99], [run.throughput], "o", markersize=14, fillstyle="none", color="#222", label="best"
        )
    axes.set(
        xlabel="time between tokens, 99th percentile, ms",
        ylabel="output tokens/s",
        title=f"{title}\nnumbers at the points: --max-num-seqs",
    )
    axes.set_xscale("log", subs=[])
    axes.set_xticks(_ticks([1e3 * bound, *(1e3 * run.between_p99 for run in medians.values())]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 1.12 * max(run.throughput for run in medians.values()))
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)


def _ticks(values: Sequence[float]) -> list[float]:
    """1, 2, 5, 10 and so on around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ticks = [factor * 10.0**power for power in range(low, high + 1) for factor in (1, 2, 5)]
    return [tick for tick in ticks if min(values) / 2 < tick < max(values) * 2]
