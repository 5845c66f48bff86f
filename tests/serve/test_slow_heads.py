"""A connection is closed where no head of a request comes, and no other one is."""

import asyncio
from collections.abc import Sequence

from uvicorn import Config, Server

from enginesmith.serve.slow_heads import hang_up_on_slow_heads

SECONDS = 0.4
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def slow_app(scope: dict, receive: object, send: object) -> None:
    await asyncio.sleep(3 * SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore


async def trickle(port: int, *pieces: bytes) -> bytes:
    """What comes back until the end of the connection, for pieces sent at intervals."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(SECONDS / 3)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


async def answers() -> Sequence[bytes]:
    config = Config(slow_app, port=0, log_config=None, lifespan="off", ws="none", timeout_keep_alive=1)  # type: ignore
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    watch = asyncio.create_task(hang_up_on_slow_heads(server.server_state.connections, SECONDS))
    found = await asyncio.gather(
        trickle(port),
        trickle(port, REQUEST[:9], REQUEST[9:12], REQUEST[12:15]),
        trickle(port, REQUEST),
        trickle(port, REQUEST[:9], REQUEST[9:]),
        trickle(port, REQUEST + REQUEST[:9]),
    )
    watch.cancel()
    server.should_exit = True
    await serving
    return found


def test_only_a_head_that_does_not_come_ends_a_connection():
    nothing, part, whole, slowly, second = asyncio.run(answers())
    assert (nothing, part) == (b"", b"")
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in (whole, slowly, second))
    assert second.count(b"HTTP/1.1") == 1
