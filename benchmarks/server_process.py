"""A server in a process of its own, as loads use and watch it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx


class Held(NamedTuple):
    """What a process holds."""

    memory: int
    """Bytes that are its own, not a file's."""
    threads: int
    descriptors: int
    children: int


class Server:
    """A server that listens; `connections`: the most that its client opens."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, connections: int) -> None:
        self.process, self.url = process, url
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self.client = httpx.AsyncClient(base_url=url, limits=limits, timeout=600)

    @property
    def held(self) -> Held:
        """What it holds now."""
        folder = Path(f"/proc/{self.process.pid}")
        status = (folder / "status").read_text()
        memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("RssAnon", "Threads"))  # type: ignore[index]
        children = (folder / "task" / str(self.process.pid) / "children").read_text().split()
        return Held(memory << 10, threads, len(list((folder / "fd").iterdir())), len(children))

    async def metric(self, name: str) -> float:
        """A number of /metrics."""
        text = (await self.client.get("/metrics")).text
        return float(re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]

    async def idle(self) -> float:
        """Wait until no request is left; the share of blocks in use then."""
        while await self.metric("num_requests_running") or await self.metric("num_requests_waiting"):
            await asyncio.sleep(0.1)
        return await self.metric("kv_cache_usage_perc")

    async def stop(self) -> int:
        """End it by SIGTERM; its exit status."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        return await self.process.wait()


@asynccontextmanager
async def serving(engine: Path, *options: object, connections: int = 100) -> AsyncIterator[Server]:
    """A server, once it listens; it is ended with the block. What it says goes to standard error."""
    code = "import sys; from enginesmith.cli.start import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "serve", str(engine), "--port", "0", *map(str, options)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stderr is not None
    server, told = None, None
    try:
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"http://\S+", line):
                server = Server(process, found[0], connections)
                break
            sys.stderr.write(line)
        if server is None:
            raise SystemExit("the server did not start")
        told = asyncio.create_task(_tell(process.stderr))
        yield server
    finally:
        if server is not None:
            await server.client.aclose()
            await server.stop()
        if told is not None:
            await told


async def _tell(stream: asyncio.StreamReader) -> None:
    while line := await stream.readline():
        sys.stderr.write(line.decode())
