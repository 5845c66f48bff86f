"""`enginesmith recipe`: run, list and show recipes."""

from dataclasses import replace
from pathlib import Path

import click
import yaml

from ..recipes.loading import load, shipped
from .progress import terminal_progress
from .stream import advise, as_argument, remark, stream
from .terminal import say, say_marked

_recipe = click.argument("recipe")
_set = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key: build.max_seq_len=512."
)


@click.group("recipe")
def command() -> None:
    """Run a recipe: fetch, import, quantize, build, check, evaluate, demo.

    RECIPE is a name from `list`, or a YAML file.
    """


@command.command("list")
def list_recipes() -> None:
    """List the recipes that come with enginesmith."""
    width = max(len(name) for name in shipped())
    for name in shipped():
        say(f"{name:<{width}}  {load(name).description}")


@command.command("show")
@_recipe
@_set
def show(recipe: str, overrides: tuple[str, ...]) -> None:
    """Print RECIPE with every default filled in."""
    say(yaml.safe_dump(load(recipe, overrides).model_dump(mode="json"), sort_keys=False).rstrip())


@command.command("run")
@_recipe
@_set
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The engine folder; default: engines/NAME.")
@click.option("--threads", type=click.IntRange(min=1), help="Worker threads; default: the physical cores available.")
@click.option("--serve", is_flag=True, help="Serve the engine at the end, as the recipe's section of that name says.")
def run(recipe: str, overrides: tuple[str, ...], output: Path | None, threads: int | None, serve: bool) -> None:
    """Run RECIPE. Steps whose inputs have not changed are skipped; an interrupted run goes on where it stopped."""
    loaded = load(recipe, overrides)
    from ..recipes.runner import Runner

    progress = terminal_progress()
    runner = Runner(loaded, output, progress)
    for step in runner.prepare():
        mark = click.style("=" if step.skipped else "+", fg="green")
        say_marked(mark, f"{step.name:<8} {step.detail}{' (unchanged)' if step.skipped else ''}", err=True)

    from ..runtime.llm import LLM

    with LLM(runner.output, threads=threads) as llm:
        say(f"> {loaded.demo.prompt}", bold=True)
        remark(stream(runner.demo(llm)).summary)
    if loaded.bench is not None:
        from ..runtime.runtime_config import RuntimeConfig
        from .bench import run_bench

        config = RuntimeConfig(threads=loaded.bench.threads or threads)
        run_bench(runner.output, loaded.bench.workloads, runs=3, config=config, as_json=False)
    if serve:
        from .serve import run_server

        engine_options = replace(loaded.serve.engine, threads=loaded.serve.engine.threads or threads)
        run_server(runner.output, loaded.serve, engine_options)
        return
    advise("enginesmith", "run", as_argument(runner.output), "--interactive")
