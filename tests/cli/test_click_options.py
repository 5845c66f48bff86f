"""Options made from models: one definition of names, types, limits and help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, Field

from enginesmith.cli.click_options import dataclass_fields, given, pydantic_fields, with_options
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.units import Bytes


class Model(BaseModel):
    plain: int = Field(3, ge=1, le=9, description="A number.")
    open_low: float = Field(0.5, gt=0, description="A share.")
    choice: Literal["a", "b"] | None = Field(None, description="One of two.")
    flag: bool = Field(True, description="Whether.")
    nested: dict[str, Any] = Field({}, description="No option can say this.")


@dataclass
class Plain:
    names: str | Sequence[str] = ()
    """Several names."""
    bias: Mapping[int, float] | None = None
    """By token."""
    size: int | None = None
    room: Bytes | None = None


def _parse(fields: list[Any], *arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    @click.command()
    @with_options(fields)
    def command(**options: Any) -> None:
        seen.update(given(options))

    result = CliRunner().invoke(command, arguments)
    if result.exit_code:
        raise ValueError(result.output)
    return seen


def test_what_is_not_given_stays_out() -> None:
    assert _parse(pydantic_fields(Model)) == {}
    assert _parse(dataclass_fields(Plain)) == {}


def test_values_have_their_types() -> None:
    assert _parse(pydantic_fields(Model), "--plain", "4", "--open-low", "0.25", "--choice", "b", "--no-flag") == {
        "plain": 4,
        "open_low": 0.25,
        "choice": "b",
        "flag": False,
    }
    assert _parse(
        dataclass_fields(Plain), "--names", "x", "--names", "y", "--bias", "3=-1.5", "--size", "7", "--room", "2GiB"
    ) == {
        "names": ("x", "y"),
        "bias": {3: -1.5},
        "size": 7,
        "room": 2 << 30,
    }


@pytest.mark.parametrize(
    "arguments",
    [("--plain", "0"), ("--plain", "10"), ("--open-low", "0"), ("--choice", "c"), ("--plain", "x"), ("--nested", "{}")],
)
def test_limits_are_those_of_the_model(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=arguments[0]):
        _parse(pydantic_fields(Model), *arguments)


@pytest.mark.parametrize("value", ["3", "x=1", "3=y", "=1"])
def test_malformed_pairs(value: str) -> None:
    with pytest.raises(ValueError, match="ID=VALUE"):
        _parse(dataclass_fields(Plain), "--bias", value)


def test_help_comes_from_descriptions_and_docstrings() -> None:
    assert [field.help for field in pydantic_fields(Model)][:2] == ["A number.", "A share."]
    assert [field.help for field in dataclass_fields(Plain)] == ["Several names.", "By token.", "", ""]
    assert all(field.help for field in dataclass_fields(SamplingParams))
