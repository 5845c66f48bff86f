"""The life of a server: listen, open the engine, serve, drain, end."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ServeError
from ..runtime.runtime_config import RuntimeConfig
from ..runtime.template_process import template_process
from .auth import ENVIRONMENT, ApiKeys, read_keys
from .options import ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Config, Server

    from ..runtime.async_llm import AsyncLLM
    from .lifecycle import Lifecycle

log = logging.getLogger(__name__)

_BACKLOG = 2048
_SWITCH_INTERVAL = 0.0005  # the engine's thread waits no longer than this, in seconds, for one that runs Python
_HANGING_UP = 1  # seconds that answers on their way are given, once all requests are done
_HEAD_SECONDS = 30  # that a client has for the head of a request
_LIBRARIES = ("fastapi", "uvicorn")


def serve(engine: str | Path, options: ServeOptions, config: RuntimeConfig, ready: Callable[[str], None]) -> None:
    """Serve an engine until SIGTERM or Ctrl-C, then drain. `ready` is called with the URL once it listens.

    Raises ServeError for an address that cannot be listened on and for keys that cannot be read, EngineError for the
    engine, ModuleNotFoundError where the extra `serve` is not installed.
    """
    keys = ApiKeys(read_keys(options.api_key_file))
    with _listen(options.host, options.port) as listener:
        address, port = listener.getsockname()[:2]
        if not keys and not _is_loopback(address):
            log.warning(
                "whoever reaches %s may use this server: give --api-key-file or %s, or let it listen on 127.0.0.1",
                address,
                ENVIRONMENT,
            )
        imported = threading.Thread(target=_import, daemon=True)  # beside the engine, which is read meanwhile
        imported.start()
        template_process.start()
        from ..runtime.async_llm import AsyncLLM

        llm = AsyncLLM(engine, config, max_queued=options.max_queue)
        try:
            imported.join()
            sys.setswitchinterval(_SWITCH_INTERVAL)
            url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
            _run(llm, options, keys, listener, lambda: ready(url))
        finally:
            llm.close()


def _import() -> None:
    """Import what `_run` needs; what fails here fails again there, where it is told."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ImportError:
            return


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise ServeError(f"--host {host}: is no address of this machine ({error.strerror})") from None
    except OSError as error:
        advice = "choose another with --port, or end what listens there; --port 0 takes a free one"
        raise ServeError(f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}; {advice}") from None
    except (UnicodeError, OverflowError):
        raise ServeError(f"--host {host[:200]!r}: is no address") from None


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _run(
    llm: "AsyncLLM", options: ServeOptions, keys: ApiKeys, listener: socket.socket, ready: Callable[[], None]
) -> None:
    import uvicorn

    from .app import create_app
    from .lifecycle import Lifecycle
    from .slow_heads import hang_up_on_slow_heads

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # `_drain_on_signals` has them

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    async def main() -> None:
        lifecycle = Lifecycle()
        app = create_app(llm, options, keys, lifecycle, lambda: len(server.server_state.connections))
        server = Server(_uvicorn_config(app, options))
        _drain_on_signals(server, llm, lifecycle, options.drain_timeout)
        slow = asyncio.create_task(hang_up_on_slow_heads(server.server_state.connections, _HEAD_SECONDS))
        await server.serve([listener])
        slow.cancel()

    asyncio.run(main())


def _uvicorn_config(app: "FastAPI", options: ServeOptions) -> "Config":
    from uvicorn import Config

    return Config(
        app,
        log_config=None,
        access_log=options.access_log,
        lifespan="off",
        ws="none",
        timeout_keep_alive=options.keep_alive_timeout,  # type: ignore[arg-type]
        timeout_graceful_shutdown=_HANGING_UP,
        server_header=False,
    )


def _drain_on_signals(server: "Server", llm: "AsyncLLM", lifecycle: "Lifecycle", seconds: float) -> None:
    """The first SIGTERM or Ctrl-C lets what runs end, within so long; the second ends the process there and then."""
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    async def drain() -> None:
        if not await lifecycle.drain(seconds):
            log.warning("requests that were not done within the --drain-timeout of %g seconds are ended", seconds)
            await asyncio.to_thread(llm.close)
        server.should_exit = True

    def asked(number: int) -> None:
        if draining:
            os._exit(128 + number)
        draining.append(loop.create_task(drain()))

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell leaves it for what runs in the background
            loop.add_signal_handler(number, asked, number)
