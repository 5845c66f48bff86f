"""Chat templates: Jinja programs that come with a model, rendered as Transformers renders them, on a short lead.

A template is untrusted. It runs in Jinja's immutable sandbox, sees plain data only, and its loops, calls, time, and the
size of what it builds are limited.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from ..errors import RequestError

_MAX_STEPS = 1_000_000
_MAX_SECONDS = 5.0
_MAX_CHARACTERS = 4_000_000
_WIDE_FORMAT = re.compile(r"\d{6,}")
_MAX_EXPONENT = 64

_FINAL_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A compiled template and the special tokens it may name. Raises RequestError when it does not compile."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._environment = _Environment()
        try:
            self._template = self._environment.from_string(source)
        except TemplateError as error:
            raise RequestError(f"the chat template does not compile: {error}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation, ending where the assistant's answer begins.

        `continue_final_message` leaves the last message open instead. `variables` are for the template.
        Raises RequestError with the template's own complaint (many demand alternating roles), or when it goes too far.
        """
        chat = [_message(message) for message in messages]
        if not chat:
            raise RequestError("messages is empty: a conversation needs at least one message")
        final = self._mark_final(chat) if continue_final_message else None
        options = {"tools": _plain(tools), "documents": _plain(documents), **_plain(variables)}
        text = self._render(
            {**self._special_tokens, **options, "messages": chat}, add_generation_prompt and final is None
        )
        return text if final is None else _cut_at_mark(text, final)

    def _render(self, variables: dict[str, Any], add_generation_prompt: bool) -> str:
        self._environment.meter.restart()
        try:
            pieces, size = [], 0
            for piece in self._template.generate(**variables, add_generation_prompt=add_generation_prompt):
                pieces.append(piece)
                size += len(piece)
                self._environment.meter.step()
                self._environment.meter.check_size(size)
            return "".join(pieces)
        except RecursionError:
            raise RequestError("the chat template calls itself without end") from None
        except MemoryError:
            raise RequestError("the chat template builds a text too large for the memory") from None
        except TemplateError as error:
            raise RequestError(f"the chat template refused the conversation: {error}") from None
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError) as error:
            raise RequestError(f"the chat template failed on the conversation: {error!r}") from None

    def _mark_final(self, chat: list[dict[str, Any]]) -> str:
        """Put a mark at the end of the last message's text; returns that text."""
        content = chat[-1].get("content")
        if isinstance(content, str):
            chat[-1]["content"] = content + _FINAL_TAG
            return content
        for block in reversed(content or ()):
            if isinstance(block, dict) and "text" in block:
                text = block["text"]
                block["text"] = text + _FINAL_TAG
                return text
        raise RequestError("continue_final_message is set, but the last message has no text to continue")


def _cut_at_mark(text: str, final: str) -> str:
    mark = text.rfind(_FINAL_TAG.strip())
    if mark < 0 or final.strip() not in text:
        raise RequestError("continue_final_message is set, but the chat template leaves the last message out")
    kept = text[:mark]
    return kept if text[mark : mark + len(_FINAL_TAG)] == _FINAL_TAG else kept.rstrip()


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: plain, without absent fields, reasoning under each of its names."""
    if not isinstance(message, Mapping):
        raise RequestError(f"messages must be objects with 'role' and 'content', got {message!r}")
    fields = {key: value for key, value in _plain(message).items() if value is not None}
    reasoning = next((fields[name] for name in _REASONING if name in fields), None)
    return fields if reasoning is None else {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def _plain(value: Any) -> Any:
    """JSON-like data rebuilt of exact built-in types; anything else becomes the name of its type."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else list(map(_plain, value))
    return f"<{type(value).__name__}>"


class _Meter:
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


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as Transformers sets it up, metered: loops, calls, filters, and the operators that can explode."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.meter = _Meter()
        self.meter.restart()
        self.filters = {name: self._metered(name, function) for name, function in self.filters.items()}
        self.filters["tojson"] = _tojson
        self.filters["metered_loop"] = self.meter.loop
        self.filters["metered_text"] = self._checked
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self.globals.update(dict=_Dict(), namespace=_Namespace)

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
            self._check_format(owner, args)
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
            if name in ("center", "indent", "batch", "format"):
                self._check_format(args[0] if args else None, (*args, *kwargs.values()))
            return self._checked(function(*args, **kwargs))

        return metered

    def _check_format(self, format: Any, widths: Sequence[Any] = ()) -> None:
        """Refuse widths, given as numbers or within a format, that ask for a huge text."""
        for value in widths:
            if isinstance(value, int):
                self.meter.check_size(value)
        if isinstance(format, str) and ("%" in format or "{" in format) and _WIDE_FORMAT.search(format):
            raise SecurityError("it formats a text of a huge width")

    def _checked(self, value: Any) -> Any:
        if isinstance(value, str | list):
            self.meter.check_size(len(value))
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
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
