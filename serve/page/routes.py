"""The page's routes: its files, and its feed, which wants a key where there are keys."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...errors import EngineClosedError
from ..json_response import to_json
from ..lifecycle import Lifecycle
from .feed import Feed
from .files import FILES, HEADERS, content, media_type


def page_routes(feed: Feed, model: str, lifecycle: Lifecycle) -> list[Route]:
    """The page of a model, and `/page/events`: an event that tells the model's name, then one a snapshot."""

    async def events(request: Request) -> Response:
        headers = {"cache-control": "no-store"}
        return StreamingResponse(_events(feed, model, lifecycle), media_type="text/event-stream", headers=headers)

    return [*(Route(path, _file) for path in FILES), Route("/page/events", events)]


async def _file(request: Request) -> Response:
    name = FILES[request.url.path]
    return Response(content(name), media_type=media_type(name), headers=HEADERS)


async def _events(feed: Feed, model: str, lifecycle: Lifecycle) -> AsyncIterator[bytes]:
    yield _event("model", to_json({"model": model}))
    try:
        while not lifecycle.ending:
            yield _event("snapshot", await feed.snapshot())
    except EngineClosedError:
        pass
    yield _event("closed", b"{}")


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
