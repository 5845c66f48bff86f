"""The server on the tiny engine of the command line's tests: its application in this process, or as a process."""

import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_engine import build_flags, built, checkpoint, cli, cli_environment, command, engine
from http_api import Api, Server

from enginesmith.runtime.async_llm import AsyncLLM

__all__ = ["build_flags", "built", "checkpoint", "cli", "cli_environment", "command", "engine"]


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of this session's applications."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def llm(engine: Path) -> Iterator[AsyncLLM]:
    """The engine, not to be closed."""
    llm = AsyncLLM(engine, threads=1)
    yield llm
    llm.close()


@pytest.fixture(scope="session")
def api(llm: AsyncLLM, runner: asyncio.Runner) -> Api:
    """The application with its default options."""
    return Api(llm, runner)


@pytest.fixture
def make_api(llm: AsyncLLM, runner: asyncio.Runner) -> Callable[..., Api]:
    """make_api(max_n=2): the application with other options."""
    return lambda **options: Api(llm, runner, **options)


@pytest.fixture(scope="session")
def start_server(command: Callable[..., list[str]], engine: Path) -> Callable[..., Any]:
    """with start_server("--max-queue", 4) as server: ..."""

    @contextmanager
    def start(*options: object, env: dict[str, str] | None = None) -> Iterator[Server]:
        arguments = command("serve", engine, "--port", 0, "--threads", 1, *options)
        process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}))
        assert process.stderr is not None
        said = []
        try:
            while not (listening := re.search(r"http://127\.0\.0\.1:(\d+)", said[-1] if said else "")):
                said.append(process.stderr.readline())
                assert said[-1], "".join(said)
            yield Server(process, listening[0], int(listening[1]))
        finally:
            process.kill()
            process.communicate()

    return start


@pytest.fixture(scope="session")
def server(start_server: Callable[..., Any]) -> Iterator[Server]:
    """A server with its default options, not to be stopped."""
    with start_server() as server:
        yield server
