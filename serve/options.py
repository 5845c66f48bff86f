"""The options of `serve`: the one definition that the command line and recipes share."""

from pydantic import Field

from ..checked_options import Options


class ServeOptions(Options):
    """Where the server listens, what it takes on, and when it gives up. Times are in seconds, sizes in bytes."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every one of this machine's.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    served_model_name: str | None = Field(
        None, min_length=1, description="What requests call the model; default: the engine's own name for it."
    )
    tool_parser: str | None = Field(
        None,
        description="The form of the model's calls of tools: hermes, llama3, mistral, pythonic or none; default: what "
        "its chat template teaches.",
    )
    reasoning_parser: str | None = Field(
        None,
        description="The form of its reasoning: think, seed, magistral or none; default: what its chat template "
        "teaches.",
    )
    api_key_file: str | None = Field(
        None,
        description="A file of keys, one a line: every route but /health and the files of the page at / wants one "
        "of them as a bearer token. Also from ENGINESMITH_API_KEY.",
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="Origin whose web pages may call the server (CORS); repeat it for several, * is any."
    )
    max_queue: int = Field(256, ge=1, le=1 << 20, description="Requests that may wait; more are answered 429.")
    max_connections: int = Field(512, ge=1, le=1 << 16, description="Connections at once; more are answered 503.")
    max_body_size: int = Field(8 << 20, ge=1 << 10, le=1 << 30, description="Most bytes in a request's body.")
    max_n: int = Field(128, ge=1, le=1024, description="Most outputs that a request may ask for, of all its prompts.")
    max_stop: int = Field(16, ge=0, le=1024, description="Most stop strings, and most stop tokens, of a request.")
    max_logprobs: int = Field(20, ge=0, le=20, description="Most log-probabilities of a token.")
    request_timeout: float | None = Field(
        None, gt=0, description="Seconds after which a request is ended, answered 504; default: none."
    )
    drain_timeout: float = Field(
        30.0, ge=0, description="Seconds that running requests are given after SIGTERM or Ctrl-C."
    )
    keep_alive_timeout: float = Field(5.0, gt=0, description="Seconds for which an idle connection is kept.")
    access_log: bool = Field(False, description="Log every request.")
