"""docs/network.md, from the table of operations: python -m enginesmith.builder.network_page > docs/network.md"""

import dataclasses
from enum import StrEnum

from ..plugins.discovery import operations
from ..plugins.plugin import Input, Operation, Output
from .operations import GROUPS

_HEAD = """\
# The network

Made by `python -m enginesmith.builder.network_page`; a test sees that it is current.

The operations that a network may hold: what tracing emits (`builder/trace/`) and passes make (`builder/passes/`), and
what every target lowers. The table is `builder/operations.py`; fused operations describe themselves in
`plugins/*/op.py`.

Tokens of all sequences are packed, without padding: T tokens, R rows of logits. Only attention, and
operations that keep a state of each sequence, combine tokens.

## Standard operations

As ONNX defines them, with every shape known but for T and R.
"""


def page() -> str:
    """The whole page."""
    lines = [_HEAD, "| group | operations | |", "| --- | --- | --- |"]
    lines += [f"| {group.title} | {', '.join(f'`{name}`' for name in group.names)} | {group.doc} |" for group in GROUPS]
    lines += ["", "## Fused operations", "", "Of the domain `enginesmith`."]
    for operation in operations().values():
        lines += ["", *_section(operation)]
    return "\n".join(lines) + "\n"


def _section(operation: Operation) -> list[str]:
    origin = "traced" if operation.is_traced else "made by a pass"
    keeps = ", with a state" if operation.state else ""
    return [
        f"### {operation.name}",
        "",
        f"{operation.doc} ({origin}{keeps}).",
        "",
        *(_value("input", value) for value in operation.inputs),
        *(_value("output", value) for value in operation.outputs),
        *(_attribute(field) for field in dataclasses.fields(operation.attributes)),
    ]


def _value(kind: str, value: Input | Output) -> str:
    optional = ", may be absent" if isinstance(value, Input) and value.optional else ""
    return f"- {kind} `{value.name}` {value.shape.replace('[', '`[').replace(']', ']`')}{optional}"


def _attribute(field: dataclasses.Field) -> str:  # type: ignore[type-arg]
    kind = field.type if isinstance(field.type, type) else type(field.default)
    names = f"one of {', '.join(repr(str(value)) for value in kind)}" if issubclass(kind, StrEnum) else kind.__name__
    default = "" if field.default is dataclasses.MISSING else f", default {str(field.default)!r}"
    return f"- attribute `{field.name}`: {names}{default}"


if __name__ == "__main__":
    print(page(), end="")
