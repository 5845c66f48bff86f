"""Options, which the CLI, recipes and the Python API share: bad ones are errors that name the field."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import OptionError, shown

_Made = TypeVar("_Made")


class _Meta(type(BaseModel)):
    """Turns what pydantic raises where options are made into one of our errors.

    Options inside another model (a recipe) are not made by a call: the other model's error tells where they are.
    """

    def __call__(cls: type[_Made], *arguments: Any, **values: Any) -> _Made:  # type: ignore[misc]
        try:
            return super().__call__(*arguments, **values)  # type: ignore[misc]
        except ValidationError as error:
            first = error.errors()[0]
            field = next((part for part in reversed(first["loc"]) if isinstance(part, str)), None)
            reason = first["msg"].removeprefix("Value error, ")
            found = f" (found {shown(first['input'])})" if field else ""
            raise OptionError(reason + found, field) from None


class Options(BaseModel, metaclass=_Meta):
    """Base of options. Raises OptionError for an unknown field, or a value that it cannot have."""

    model_config = ConfigDict(extra="forbid", frozen=True)
