"""Hostile schemas and grammars end in errors, within bounds, and nobody else notices."""

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from enginesmith.errors import ParameterError
from enginesmith.runtime.structured_output import grammar_process as module
from enginesmith.runtime.structured_output.grammar_process import GrammarProcess
from enginesmith.runtime.structured_output.params import StructuredOutputsParams


@pytest.fixture(scope="module")
def process() -> Iterator[GrammarProcess]:
    process = GrammarProcess()
    yield process
    process._stop()


def _nested(depth: int) -> str:
    return '{"type": "array", "items": ' * depth + "{}" + "}" * depth


def _doubling(keyword: str, times: int) -> dict:
    defs: dict = {"d0": {"type": "string"}}
    for at in range(1, times):
        defs[f"d{at}"] = {keyword: [{"$ref": f"#/$defs/d{at - 1}"}, {"$ref": f"#/$defs/d{at - 1}"}]}
    return {"$defs": defs, "$ref": f"#/$defs/d{times - 1}"}


HOSTILE = {
    "deep": {"json": _nested(400)},
    "allOf": {"json": _doubling("allOf", 30)},
    "anyOf": {"json": _doubling("anyOf", 30)},
    "itself": {"json": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}},
    "product": {
        "json": {"allOf": [{"anyOf": [{"properties": {f"{i}_{j}": {}}} for i in range(9)]} for j in range(12)]},
    },
    "wide": {"json": {"properties": {f"property {at}": {"type": "string"} for at in range(2000)}}},
    "many": {"json": {"enum": [f"value number {at}" for at in range(12000)]}},
    "long": {"json": {"type": "string", "minLength": 10**6, "maxLength": 10**9}},
    "range": {"json": {"type": "number", "minimum": -1.2345e-200, "maximum": 1.2345e200}},
    "divisor": {"json": {"type": "integer", "multipleOf": 49999}},
    "remote": {"json": {"$ref": "http://127.0.0.1:1/schema.json"}},
    "repeats": {"regex": "((((a|b){1,1000}){1,1000}){1,1000}){1,1000}"},
    "parentheses": {"regex": "(" * 9999 + "a" + ")" * 9999},
    "states": {"regex": "(.*a){20}.{200}"},
    "lark": {"grammar": "start: " + "(" * 20000 + '"a"' + ")" * 20000},
    "gbnf": {"grammar": "root ::= " + "(" * 20000 + '"a"' + ")" * 20000},
    "rules": {"grammar": "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(999)) + 'a999: "x"'},
    "choices": {"choice": [f"choice {at}" for at in range(12000)]},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_it_answers_within_bounds(process: GrammarProcess, fields: dict) -> None:
    start = time.perf_counter()
    with contextlib.suppress(ParameterError):
        assert process.grammar(StructuredOutputsParams(**fields).source)
    assert time.perf_counter() - start < module.MAX_SECONDS + 1
    assert process.grammar(StructuredOutputsParams(regex="a+").source)


def test_what_a_schema_may_not_say(process: GrammarProcess) -> None:
    for schema, complaint in [
        ({"type": "strin"}, "Invalid type: strin"),
        ({"type": "object", "dependentRequired": {}}, 'Unimplemented keys: ["dependentRequired"]'),
        ({"x-guidance": {"lenient": True}, "contains": {}}, 'Unimplemented keys: ["contains"]'),
        ({"enum": []}, "Unsatisfiable schema"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf constraints are not supported. Use anyOf"),
    ]:
        with pytest.raises(ParameterError) as error:
            process.grammar(StructuredOutputsParams(json=schema).source)
        assert f"structured_outputs.json: cannot be compiled: {complaint}" in str(error.value)
        assert "\n" not in str(error.value)


def test_what_the_lexer_takes_is_bounded(process: GrammarProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only compiling shows it, and the server would be the first to compile."""
    process.grammar(StructuredOutputsParams(regex="a").source)
    monkeypatch.setattr(module, "MAX_SECONDS", 0.1)
    for divisor in (999983, 999979):
        with pytest.raises(ParameterError, match=r"json: takes more than 0\.1 seconds to compile: simplify it"):
            process.grammar(StructuredOutputsParams(json={"type": "integer", "multipleOf": divisor}).source)
        monkeypatch.undo()
        process.grammar(StructuredOutputsParams(regex="a").source)
        monkeypatch.setattr(module, "MAX_SECONDS", 0.1)


def test_a_token_by_name_is_refused(process: GrammarProcess) -> None:
    with pytest.raises(ParameterError, match="unknown special token"):
        process.grammar(StructuredOutputsParams(grammar='start: <|im_start|> "a"').source)


def test_time_is_bounded(process: GrammarProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    process.grammar(StructuredOutputsParams(regex="a").source)
    monkeypatch.setattr(module, "MAX_SECONDS", 0.02)
    wide = StructuredOutputsParams(json=json.dumps(HOSTILE["wide"]["json"]))
    with pytest.raises(ParameterError, match=r"json: takes more than 0\.02 seconds to compile: simplify it"):
        process.grammar(wide.source)
    monkeypatch.undo()
    assert process.grammar(StructuredOutputsParams(regex="a").source)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMORY", 48 << 20)
    little = GrammarProcess()
    try:
        with pytest.raises(ParameterError, match=r"json: (ended the process|cannot be compiled: it needs more memory)"):
            little.grammar(StructuredOutputsParams(json=HOSTILE["wide"]["json"]).source)
    finally:
        little._stop()
