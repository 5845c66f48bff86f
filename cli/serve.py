"""`enginesmith serve`: an engine behind OpenAI's HTTP API."""

from pathlib import Path
from typing import Any

import click

from ..runtime.runtime_config import RuntimeConfig
from ..serve.options import ServeOptions
from .click_options import dataclass_fields, given, made_from, pydantic_fields, with_options
from .terminal import say

_ENGINE_FIELDS = dataclass_fields(RuntimeConfig)


@click.command("serve")
@click.argument("engine", type=click.Path(path_type=Path))
@with_options(pydantic_fields(ServeOptions))
@with_options(_ENGINE_FIELDS)
def command(engine: Path, **options: Any) -> None:
    """Serve ENGINE over HTTP, as OpenAI's API and vLLM's server do.

    SIGTERM or Ctrl-C lets running requests end first; a second one does not.
    """
    config = RuntimeConfig(**given({field.name: options.pop(field.name) for field in _ENGINE_FIELDS}))
    run_server(engine, made_from(ServeOptions, options), config)


def run_server(engine: Path, options: ServeOptions, config: RuntimeConfig) -> None:
    """Serve, and say where."""
    from ..serve.server import serve

    serve(engine, options, config, lambda url: say(f"serving {engine} on {url}", err=True))
