"""/health and /version."""

from fastapi import APIRouter

from ... import __version__
from ..errors import unavailable
from ..json_response import JsonResponse
from ..service import Shared

router = APIRouter()


@router.get("/health")
async def health(service: Shared) -> JsonResponse:
    """200 while the server takes requests, 503 while it drains; needs no key."""
    if service.lifecycle.draining:
        raise unavailable("the server is shutting down", "draining")
    return JsonResponse({"status": "ok"})


@router.get("/version")
async def version() -> JsonResponse:
    """The version of enginesmith."""
    return JsonResponse({"version": __version__})
