"""/metrics, for Prometheus."""

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from ..service import Service, Shared

router = APIRouter()


@router.get("/metrics")
async def metrics(service: Shared) -> Response:
    """Counts of this moment."""
    return Response(await asyncio.to_thread(_text, service), media_type="text/plain; version=0.0.4; charset=utf-8")


def _text(service: Service) -> bytes:
    from ..exposition import exposition  # at the first use: the library takes a tenth of a second

    return exposition(service)
