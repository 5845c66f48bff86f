"""What the routes share: the engine, the model's name, the limits."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ..errors import shown
from ..runtime.async_llm import AsyncLLM
from .answer import AnswerFormat
from .errors import ApiError
from .lifecycle import Lifecycle
from .options import ServeOptions


@dataclass(frozen=True)
class Service:
    """One model, served. `created` is when it was made, in seconds since 1970."""

    engine: AsyncLLM
    options: ServeOptions
    lifecycle: Lifecycle
    answers: AnswerFormat
    model: str
    created: int

    def check_model(self, name: str | None) -> None:
        """Raise 404 for the name of another model; a request without one means this."""
        if name is not None and name != self.model:
            raise ApiError(
                404,
                f"model {shown(name)} does not exist; this server has {self.model!r}",
                param="model",
                code="model_not_found",
            )


async def _service(request: Request) -> Service:
    return request.app.state.service


Shared = Annotated[Service, Depends(_service)]
"""A route's parameter."""
