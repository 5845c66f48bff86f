"""The application: routes, and what stands before and behind them."""

import time
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from .. import __version__
from ..runtime.async_llm import AsyncLLM
from ..units import shown_size
from .answer import AnswerFormat
from .auth import ApiKeys, Authentication
from .body_limit import BodyLimit
from .errors import ApiError, internal, malformed
from .json_response import error_response
from .lifecycle import Admission, Lifecycle
from .options import ServeOptions
from .page.feed import Feed
from .page.routes import page_routes
from .routes import chat, completions, health, metrics, models, tokenize
from .service import Service
from .streaming import ClientGoneError

_ROUTES = (chat, completions, models, tokenize, health, metrics)
_CLIENT_GONE = 499  # as nginx has it; nobody sees it


def create_app(
    engine: AsyncLLM, options: ServeOptions, keys: ApiKeys, lifecycle: Lifecycle, connections: Callable[[], int]
) -> FastAPI:
    """The application for an engine. `connections`: how many are open."""
    app = FastAPI(title="enginesmith", version=__version__, docs_url=None, redoc_url=None)
    name = options.served_model_name or engine.manifest.model.name
    template = engine.tokenizer.chat_template
    answers = AnswerFormat.of(template and template.source, options.tool_parser, options.reasoning_parser)
    app.state.service = Service(engine, options, lifecycle, answers, name, int(time.time()))
    for module in _ROUTES:
        app.include_router(module.router)
    app.router.routes += page_routes(Feed(engine), name, lifecycle)
    app.add_exception_handler(ApiError, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(ClientGoneError, _answer)
    app.add_exception_handler(Exception, _answer)
    app.add_middleware(BodyLimit, most=options.max_body_size)
    app.add_middleware(Admission, lifecycle=lifecycle, connections=connections, max_connections=options.max_connections)
    if keys:
        app.add_middleware(Authentication, keys=keys)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.allowed_origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )
    return app


async def _answer(request: Request, error: Exception) -> Response:
    """What went wrong, in OpenAI's form."""
    if isinstance(error, ClientGoneError):
        return Response(status_code=_CLIENT_GONE)
    if isinstance(error, RequestValidationError):
        error = malformed(error.errors())
    elif isinstance(error, HTTPException):
        error = _of_http(request, error)
    elif not isinstance(error, ApiError):
        error = internal()  # the server logs it
    return error_response(error)


def _of_http(request: Request, error: HTTPException) -> ApiError:
    """The framework's own errors."""
    method, path = request.method, request.url.path[:200]
    message = {
        400: "the body cannot be read: it must be JSON, within Python's limits of depth and of digits",
        404: f"there is no {path!r} here",
        405: f"{path!r} does not take {method}",
        413: f"the body has more than {shown_size(request.app.state.service.options.max_body_size)}, the most that "
        "this server reads (--max-body-size)",
    }.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers)
