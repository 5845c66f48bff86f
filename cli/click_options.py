"""Click options made from a pydantic model or a dataclass, so that an option is defined once: where it is used."""

import ast
import inspect
import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from ..errors import OptionError, shown
from ..runtime.runtime_config import RuntimeConfig
from ..units import Bytes, read_size

if TYPE_CHECKING:
    from pydantic import BaseModel

    Model = TypeVar("Model", bound=BaseModel)

Command = TypeVar("Command", bound=Callable[..., Any])

_MOST_BYTES = 1 << 60
_LIMITS = ("ge", "gt", "le", "lt")
_RUNTIME = RuntimeConfig.__dataclass_fields__


@dataclass(frozen=True)
class Field:
    """One field of a model, as the command line sees it. `limits` has any of ge, gt, le, lt."""

    name: str
    annotation: Any
    default: object
    help: str
    limits: Mapping[str, float]
    required: bool = False
    off: str = ""  # what a flag that is turned off is called; default: "no-" and its name

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def pydantic_fields(model: "type[BaseModel]") -> list[Field]:
    """The fields of a pydantic model; help is the field's description."""
    return [
        Field(
            name=name,
            annotation=field.annotation,
            default=None if field.is_required() else field.default,
            help=field.description or "",
            limits={
                key: getattr(m, key) for m in field.metadata for key in ("ge", "gt", "le", "lt") if hasattr(m, key)
            },
            required=field.is_required(),
            off=str(field.json_schema_extra["off"]) if isinstance(field.json_schema_extra, dict) else "",
        )
        for name, field in model.model_fields.items()
    ]


def renamed(field: Field, name: str, help: str) -> Field:
    """The field as an option of another command, where it may be left out."""
    return replace(field, name=name, help=help, required=False)


def dataclass_fields(kind: type) -> list[Field]:
    """The fields of a dataclass; help is the string below the field. Its constructor checks limits."""
    hints, docs = get_type_hints(kind), _field_docs(kind)
    return [
        Field(f.name, hints[f.name], None if f.default is MISSING else f.default, docs.get(f.name, ""), {})
        for f in fields(kind)
    ]


def with_options(model_fields: Iterable[Field], *, skip: Container[str] = ()) -> Callable[[Command], Command]:
    """A decorator adding `--max-batch-size` for the field `max_batch_size`, and so on, in order.

    An option that is not given arrives as None or (); `given` drops those, so that defaults live in the model alone.
    """

    def decorate(command: Command) -> Command:
        for field in reversed(list(model_fields)):
            if field.name not in skip and (option := _option(field)) is not None:
                command = option(command)
        return command

    return decorate


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Only the options that the user gave."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def runtime_config(options: Mapping[str, Any]) -> RuntimeConfig:
    """How to run an engine, of the options that the user gave."""
    return RuntimeConfig(**{name: value for name, value in given(options).items() if name in _RUNTIME})


def made_from(model: "type[Model]", options: Mapping[str, Any]) -> "Model":
    """The options that the user gave, as a model; bad ones are usage errors that name the flag."""
    try:
        return model(**given(options))
    except OptionError as error:
        if error.field is None:
            raise
        raise click.BadParameter(f"{error.reason}.", param_hint="--" + error.field.replace("_", "-")) from None


def _option(field: Field) -> Callable[[Any], Any] | None:
    kind, repeated = _plain_type(field.annotation)
    if kind is None:
        return None
    if kind is bool:
        off = field.off or f"no-{field.flag[2:]}"
        return click.option(f"{field.flag}/--{off}", field.name, default=None, help=_help(field))
    if kind is dict:
        return click.option(
            field.flag, field.name, multiple=True, metavar="ID=VALUE", help=_help(field), callback=_pairs
        )
    return click.option(
        field.flag,
        field.name,
        type=_click_type(kind, field),
        multiple=repeated,
        required=field.required,
        help=_help(field),
    )


def _help(field: Field) -> str:
    """The description with the default, unless the description tells it or there is none to tell."""
    if field.default in (None, (), False, True) or not isinstance(field.default, str | int | float):
        return field.help
    return field.help if "default" in field.help else f"{field.help} [default: {field.default}]"


def _plain_type(annotation: Any) -> tuple[Any, bool]:
    """What one value of the option is, and whether the option repeats; (None, False) if no option can say it."""
    origin, arguments = get_origin(annotation), [a for a in get_args(annotation) if a is not type(None)]
    if origin in (Union, types.UnionType):
        repeatable = [a for a in arguments if get_origin(a) in (list, tuple, Sequence)]
        return _plain_type(repeatable[0] if repeatable else arguments[0])
    if origin in (list, tuple, Sequence):
        return (arguments[0], True) if arguments[0] in (str, int, float) else (None, False)
    if origin in (dict, Mapping):
        return (dict, True) if tuple(arguments) == (int, float) else (None, False)
    if origin is Literal or annotation in (str, int, float, bool, Bytes) or _is_enum(annotation):
        return annotation, False
    return None, False


def _click_type(kind: Any, field: Field) -> click.ParamType:
    if get_origin(kind) is Literal:
        return _Choice(get_args(kind))
    if _is_enum(kind):
        return _Choice(tuple(kind))
    if kind is str:
        return click.STRING
    if kind is Bytes:
        return Size()
    low, high = (field.limits.get("ge", field.limits.get("gt")), field.limits.get("le", field.limits.get("lt")))
    limits: dict[str, Any] = {
        "min": low,
        "max": high,
        "min_open": "gt" in field.limits,
        "max_open": "lt" in field.limits,
    }
    if low is None and high is None:
        return click.INT if kind is int else click.FLOAT
    return click.IntRange(**limits) if kind is int else click.FloatRange(**limits)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


class Size(click.ParamType):
    """A size: 2GB, 512MiB, or a plain number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = read_size(str(value))
        if size is None:
            self.fail(f"{shown(value)} is not a size such as 2GB, 512MiB or a number of bytes", param, ctx)
        if size > _MOST_BYTES:
            self.fail(f"{shown(value)} is more memory than any machine has", param, ctx)
        return size


class _Choice(click.Choice):
    """One of some values, which need not be texts, given as text."""

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__([str(value) for value in values])
        self._values = {str(value): value for value in values}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._values[super().convert(value, param, ctx)]


def _pairs(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[int, float] | None:
    """{7: -1.5} from ("7=-1.5",)."""
    try:
        return {int(key): float(number) for key, _, number in (value.partition("=") for value in values)} or None
    except ValueError:
        raise click.BadParameter(f"expected ID=VALUE with a token id and a number, found {list(values)}") from None


def _field_docs(kind: type) -> dict[str, str]:
    """{field: the string literal that follows it} of a class."""
    module = ast.parse(Path(inspect.getfile(kind)).read_bytes())
    docs = {}
    for statement, after in pairwise(_body(module, kind.__qualname__)):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            docs[statement.target.id] = after.value.value
    return docs


def _body(module: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module's class. (`inspect.getsource` tokenizes in Python, and every start would wait.)"""
    return next((node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == name), [])
