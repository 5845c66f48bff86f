"""The handler of `template_process.py`: renders chat templates with Jinja, as Transformers sets it up.

It imports Jinja and nothing of enginesmith, so that it starts fast. A template is an untrusted program: Jinja's
immutable sandbox keeps it from Python's internals, `sandbox.py` bounds its time and memory.
"""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MAX_CHARACTERS = 4_000_000
_MAX_COMPLAINT = 2000


def answer(source: str, variables: dict[str, Any] | None) -> tuple[bool, str]:
    """Whether the template rendered, and the text, or what ails it. Without variables it is only compiled."""
    try:
        template = _compiled(source)
    except MemoryError:
        _compiled.cache_clear()  # nor should what it keeps be missing to others
        return False, "does not compile within the memory that it may have"
    except RecursionError:
        return False, "does not compile: it is nested too deeply"
    except Exception as error:  # Jinja's errors, and Python's on the code that Jinja makes
        return False, f"does not compile: {_complaint(error)}"
    try:
        text = "" if variables is None else template.render(variables)
    except RecursionError:
        return False, "calls itself without end"
    except MemoryError:
        _compiled.cache_clear()
        return False, "needs more memory than it may have"
    except TemplateError as error:
        return False, f"refused the conversation: {_complaint(error)}"
    except Exception as error:  # whatever Python raises on what it does
        return False, f"failed on the conversation: {type(error).__name__}: {_complaint(error)}"
    if len(text) > _MAX_CHARACTERS:
        return False, f"made a text of {len(text)} characters; the limit is {_MAX_CHARACTERS}"
    return True, text


def _complaint(error: Exception) -> str:
    return str(error)[:_MAX_COMPLAINT]


class _Generation(Extension):
    """The tag {% generation %}, around what the assistant says. It changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return caller()


class _Dict:
    """What templates may do with `dict`."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Jinja's namespace without underscore names, which could reach Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _environment() -> ImmutableSandboxedEnvironment:
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    jinja.filters["tojson"] = _tojson
    jinja.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    jinja.globals.update(dict=_Dict(), namespace=_Namespace)
    return jinja


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    """Each in an environment of its own: nothing passes from one template to another."""
    return _environment().from_string(source)
