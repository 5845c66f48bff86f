"""`enginesmith build`: a checkpoint in, an engine folder out."""

from pathlib import Path
from typing import Any, Literal

import click

from ..builder.build_options import BuildConfig
from ..builder.quantize.quantize_options import QuantizeConfig
from ..builder.targets.options import DEFAULT, TARGETS, options_of
from .click_options import Field, given, made_from, pydantic_fields, renamed, with_options
from .progress import terminal_progress
from .show import show_build
from .stream import advise, as_argument

_METHOD = "quantize"
# Options that both have mean the same; how a checkpoint is stored that nobody sees does not matter.
_SHARED, _UNUSED = ("group_size", "kv_cache"), ("format",)
_quantize_fields = [
    renamed(field, _METHOD, "Quantize first, by this method; see `enginesmith quantize -h`.")
    if field.name == "method"
    else renamed(field, field.name, f"With --quantize: {field.help}")
    for field in pydantic_fields(QuantizeConfig)
    if field.name not in (*_SHARED, *_UNUSED)
]
_TARGET = "target"
_target_fields = [
    Field(_TARGET, Literal[TARGETS], DEFAULT, "What the engine runs on.", {}),  # type: ignore[valid-type]
    *(
        renamed(field, field.name, f"With --target {target}: {field.help}")
        for target in TARGETS
        for field in pydantic_fields(options_of(target))
        if field.name != "name"
    ),
]


@click.command("build")
@click.argument("checkpoint")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The engine folder to write.")
@with_options(pydantic_fields(BuildConfig))
@with_options(_target_fields)
@with_options(_quantize_fields)
def command(checkpoint: str, output: Path, **options: Any) -> None:
    """Build an engine from CHECKPOINT: a Hugging Face folder, a GGUF file, or a Hub id.

    The engine is written beside OUTPUT and renamed when it is whole; an older engine there is replaced.
    """
    config, quantization = _configs(options)
    from ..builder.build import build
    from ..checkpoint.sources import resolve

    progress = terminal_progress()
    report = build(resolve(checkpoint, progress), output, config, quantize=quantization, progress=progress)
    show_build(report, output)
    advise("enginesmith", "run", as_argument(output), "-p", "your prompt")


def _configs(options: dict[str, Any]) -> tuple[BuildConfig, QuantizeConfig | None]:
    """The options of the build, and of the quantization before it if one was asked for."""
    asked = given({field.name: options.pop(field.name) for field in _quantize_fields})
    target = given({field.name: options.pop(field.name) for field in _target_fields})
    if target:
        options[_TARGET] = {"name": target.pop(_TARGET, DEFAULT), **target}
    if _METHOD not in asked:
        if asked:
            flags = ", ".join("--" + name.replace("_", "-") for name in asked)
            raise click.UsageError(f"{flags}: only with --quantize METHOD")
        config = made_from(BuildConfig, options)
        if config.group_size is not None and config.weights is None:
            raise click.UsageError("--group-size goes with --weights or --quantize")
        return config, None
    asked["method"] = asked.pop(_METHOD)
    asked["group_size"] = options.pop("group_size")
    return made_from(BuildConfig, options), made_from(QuantizeConfig, asked)
