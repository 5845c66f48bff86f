"""The page's own files. They hold nothing of the engine, so that anybody may read them: they ask for the key."""

from functools import cache
from pathlib import Path

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MODULES = ("cache", "charts", "colours", "feed", "history", "map", "page", "rates", "sequences")
FILES = {"/": "index.html"} | {
    f"/page/{name}": name for name in ("page.css", "icon.svg", *(f"{module}.js" for module in _MODULES))
}
"""{path of the URL: name}."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
"""Nothing is loaded from elsewhere, nothing is sent elsewhere, and no other page may hold this one."""


def media_type(name: str) -> str:
    """What a file is."""
    return _TYPES[Path(name).suffix]


@cache
def content(name: str) -> bytes:
    """A file's bytes."""
    return (Path(__file__).parent / "static" / name).read_bytes()
