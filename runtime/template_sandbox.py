"""The sandbox that chat templates run in: Jinja as Transformers sets it up, with limits."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MAX_STEPS = 1_000_000
_MAX_SECONDS = 5.0
_MAX_CHARACTERS = 4_000_000
_MAX_EXPONENT = 64
_MAX_BITS = 4096
_MAX_INDENT = 64
_SIZED_FILTERS = frozenset({"center", "indent", "batch", "slice", "format", "round", "truncate", "wordwrap"})
_WIDE_FORMAT = re.compile(r"\d{6,}")


class Meter:
    """Counts what a rendering does."""

    def restart(self) -> None:
        self._steps = 0
        self._deadline = time.monotonic() + _MAX_SECONDS

    def step(self, count: int = 1) -> None:
        """Note loop rounds or calls."""
        self._steps += count
        if self._steps > _MAX_STEPS or time.monotonic() > self._deadline:
            raise SecurityError(f"it took more than {_MAX_STEPS} steps or {_MAX_SECONDS:g} seconds")

    def check_size(self, size: int) -> None:
        """Note a text or list of `size`."""
        if size > _MAX_CHARACTERS:
            raise SecurityError(f"it made a text of more than {_MAX_CHARACTERS} characters")

    def loop(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """What a loop runs over, its rounds paid for at the start where their number is known."""
        try:
            self.step(len(iterable))  # type: ignore[arg-type]
        except TypeError:
            return self._each(iterable)
        return iterable

    def _each(self, iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            self.step()
            yield item


class SandboxedTemplates(ImmutableSandboxedEnvironment):
    """Jinja as Transformers sets it up, metered: loops, calls, filters, and the operators that can explode."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.meter = Meter()
        self.meter.restart()
        self.filters = {name: self._metered(name, function) for name, function in self.filters.items()}
        self.filters["tojson"] = _tojson
        self.filters["metered_loop"] = self.meter.loop
        self.filters["metered_text"] = self._checked
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self.globals.update(dict=_Dict(), namespace=_Namespace)
        del self.globals["lipsum"]  # as much text as it is asked for

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in template.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "metered_loop", [], [], None, None)
        for block in template.find_all(nodes.AssignBlock):
            block.filter = nodes.Filter(block.filter, "metered_text", [], [], None, None)
        _wrap_concatenations(template)
        template.set_environment(self)
        return template

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.meter.step()
        if isinstance(owner := getattr(obj, "__self__", None), str):
            self._check_format(owner, (*args, *kwargs.values()))
            self._check_growth(getattr(obj, "__name__", ""), owner, args)
        return self._checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and isinstance(right, int | float) and abs(right) > _MAX_EXPONENT:
            raise SecurityError(f"it raised a number to a power beyond {_MAX_EXPONENT}")
        if operator == "%" and isinstance(left, str):
            self._check_format(left)
        if operator == "*":
            for items, times in ((left, right), (right, left)):
                if isinstance(items, str | list | tuple) and isinstance(times, int):
                    self.meter.check_size(len(items) * times)
        return self._checked(super().call_binop(context, operator, left, right))

    def _metered(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose result is measured, and beforehand what could make it huge."""

        @wraps(function)  # keeps Jinja's marks
        def metered(*args: Any, **kwargs: Any) -> Any:
            self.meter.step()
            if name in _SIZED_FILTERS:
                self._check_format(args[0] if args else None, (*args, *kwargs.values()))
            if name == "replace":  # (context, text, old, new)
                self._check_growth(name, str(args[1]), args[2:])
            if name == "join":  # (context, items, separator)
                separator, *_ = *args[2:], kwargs.get("d", "")
                self._check_join(str(separator), args[1])
            return self._checked(function(*args, **kwargs))

        return metered

    def _check_format(self, format: Any, widths: Sequence[Any] = ()) -> None:
        """Refuse widths, given as numbers or within a format, that ask for a huge text."""
        for value in widths:
            if isinstance(value, int):
                self.meter.check_size(value)
        if isinstance(format, str) and ("%" in format or "{" in format) and _WIDE_FORMAT.search(format):
            raise SecurityError("it formats a text of a huge width")

    def _check_growth(self, method: str, text: str, arguments: Sequence[Any]) -> None:
        """Refuse str.replace and str.join that would make a huge text."""
        if method == "replace" and len(arguments) >= 2 and all(isinstance(value, str) for value in arguments[:2]):
            old, new = arguments[:2]
            self.meter.check_size(len(text) + text.count(old) * len(new))
        if method == "join" and arguments:
            self._check_join(text, arguments[0])

    def _check_join(self, separator: str, items: Any) -> None:
        if isinstance(items, list | tuple):
            self.meter.check_size(sum(len(item) + len(separator) for item in items if isinstance(item, str)))

    def _checked(self, value: Any) -> Any:
        if isinstance(value, str | list):
            self.meter.check_size(len(value))
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise SecurityError(f"it made a number of more than {_MAX_BITS} bits")
        return value


def _wrap_concatenations(node: nodes.Node) -> None:
    """Measure what the ~ operator makes."""
    for field, value in node.iter_fields():
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, nodes.Node):
                continue
            _wrap_concatenations(child)
            if isinstance(child, nodes.Concat):
                wrapped = nodes.Filter(child, "metered_text", [], [], None, None)
                if isinstance(value, list):
                    value[index] = wrapped
                else:
                    setattr(node, field, wrapped)


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
    if isinstance(indent, int) and indent > _MAX_INDENT:
        raise SecurityError(f"it indents by more than {_MAX_INDENT} spaces")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
