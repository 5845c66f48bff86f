"""Click options made from a pydantic model, so that an option is defined once: where it is used."""

import types
from collections.abc import Callable, Container, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
import click
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ..errors import EnginesmithError

Model = TypeVar("Model", bound=BaseModel)
Command = TypeVar("Command", bound=Callable[..., Any])


def model_options(model: type[BaseModel], *, skip: Container[str] = ()) -> Callable[[Command], Command]:
    """A decorator adding `--max-batch-size` for the field `max_batch_size`, and so on, in the model's order.

    An option that is not given stays out of the keywords handed to `build_model`: defaults live in the model.
    """

    def decorate(command: Command) -> Command:
        for name, field in reversed(model.model_fields.items()):
            if name not in skip and (option := _option(name, field)) is not None:
                command = option(command)
        return command

    return decorate


def build_model(model: type[Model], values: Mapping[str, object]) -> Model:
    """The model from the given options; a value it refuses is a usage error that names the option."""
    given = {name: value for name, value in values.items() if name in model.model_fields and _was_given(value)}
    try:
        return model(**given)
    except EnginesmithError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else model.__name__
        raise click.BadParameter(f"{first['msg']} (found {first['input']!r})", param_hint=option) from None


def _was_given(value: object) -> bool:
    return value is not None and value != ()


def _option(name: str, field: FieldInfo) -> Callable[[Any], Any] | None:
    flag, help = "--" + name.replace("_", "-"), field.description or ""
    kind, repeated = _plain_type(field.annotation)
    if kind is None:
        return None
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help)
    return click.option(flag, name, type=_click_type(kind, field), multiple=repeated, default=None, help=_help(help, field))


def _help(help: str, field: FieldInfo) -> str:
    """The description with the default, unless the description tells it or there is none to tell."""
    if field.is_required() or field.default in (None, (), []) or field.default_factory or "default" in help:
        return help
    return f"{help} [default: {field.default}]"


def _plain_type(annotation: Any) -> tuple[Any, bool]:
    """What one value of the option is, and whether the option repeats; (None, False) if no option can say it."""
    origin, arguments = get_origin(annotation), [a for a in get_args(annotation) if a is not type(None)]
    if origin in (Union, types.UnionType):
        repeatable = [a for a in arguments if get_origin(a) in (list, tuple)]
        return _plain_type(repeatable[0] if repeatable else arguments[0])
    if origin in (list, tuple):
        return (arguments[0], True) if arguments[0] in (str, int, float) else (None, False)
    if origin is Literal or annotation in (str, int, float, bool):
        return annotation, False
    return None, False


def _click_type(kind: Any, field: FieldInfo) -> click.ParamType:
    if get_origin(kind) is Literal:
        return click.Choice([str(choice) for choice in get_args(kind)])
    if kind is str:
        return click.STRING
    low, high, low_open, high_open = None, None, False, False
    for limit in field.metadata:
        if isinstance(limit, annotated_types.Ge):
            low = limit.ge
        elif isinstance(limit, annotated_types.Gt):
            low, low_open = limit.gt, True
        elif isinstance(limit, annotated_types.Le):
            high = limit.le
        elif isinstance(limit, annotated_types.Lt):
            high, high_open = limit.lt, True
    range_type = click.IntRange if kind is int else click.FloatRange
    return range_type(low, high, min_open=low_open, max_open=high_open)  # pyright: ignore[reportArgumentType, reportCallIssue]
