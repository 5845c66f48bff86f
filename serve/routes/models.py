"""/v1/models: the one model that is served."""

from typing import Any

from fastapi import APIRouter

from ..json_response import JsonResponse
from ..service import Service, Shared

router = APIRouter()


@router.get("/v1/models")
async def models(service: Shared) -> JsonResponse:
    """A list of one."""
    return JsonResponse({"object": "list", "data": [_card(service)]})


@router.get("/v1/models/{name:path}")
async def model(name: str, service: Shared) -> JsonResponse:
    """The model by its name, which may hold slashes."""
    service.check_model(name)
    return JsonResponse(_card(service))


def _card(service: Service) -> dict[str, Any]:
    manifest = service.engine.manifest
    return {
        "id": service.model,
        "object": "model",
        "created": service.created,
        "owned_by": "enginesmith",
        "root": manifest.model.name,
        "parent": None,
        "max_model_len": manifest.limits.max_seq_len,
    }
