"""/health and /version."""

from fastapi import APIRouter

from ... import __version__
from ..errors import unavailable
from ..json_response import JsonResponse
from ..service import Shared

router = APIRouter()


@router.get("/health")
async def health(service: Shared) -> JsonResponse:
    """200 while the server takes requests, 503 while it drains and once its engine has failed; needs no key."""
    if service.lifecycle.draining:
        raise unavailable("the server is shutting down", "draining")
    if (refusal := service.engine.refusal) is not None:
        raise unavailable(str(refusal), "engine_closed")
    return JsonResponse({"status": "ok"})


@router.get("/version")
async def version() -> JsonResponse:
    """The version of enginesmith."""
    return JsonResponse({"version": __version__})
