"""What a grammar allows, held against `jsonschema`, Python's `re`, and itself."""

import json
import random
import re

import jsonschema
import pytest
from grammar_model import GrammarModel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginesmith.errors import RequestError
from enginesmith.runtime.structured_output.params import StructuredOutputsParams, ThinkingTags

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "kind": {"const": "person"},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
SCHEMAS = [
    PERSON,
    {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1},
    {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-c]+$"}]},
    {"type": "object", "properties": {"x": {"type": "boolean"}}},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
    {"type": "number", "minimum": -1.5, "exclusiveMaximum": 10},
    {"type": "integer", "multipleOf": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False, "minItems": 2},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
    {"type": ["string", "null"]},
    {"enum": [1, "two", [3], {"four": 4}, None, True]},
    {"type": "object", "patternProperties": {"^s_": {"type": "string"}}, "additionalProperties": False},
    {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
    {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    {"const": {"four": 4}},
    {"$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "$ref": "#/$defs/tree"},
    {"type": "object", "properties": {"a": False}},
    {"type": "array", "minItems": 1, "maxItems": 1},
    {"type": "string", "format": "date"},
    {},
]
VALUES = [
    None, True, False, 0, 1, 3, -1, 9, 10, 150, 151, 2.5, -1.5, -1.75, "", "a", "abc", "abcd", "two", "é", "日本",
    "2026-12-01", "2026-13-01",
    [[]], [[[]], []],
    [], [1], [3], [1, True], [1, True, None], ["a"], {}, {"a": 1}, {"a": "1"}, {"x": True}, {"x": 1}, {"a": 1, "b": 2},
    {"a": 1, "b": 2, "c": 3}, {"four": 4}, {"s_a": "b"}, {"s_a": 1}, {"t": "b"},
    {"name": "abc", "age": 3, "kind": "person"}, {"name": "abc", "age": 3, "tags": ["a", "b"], "kind": "person"},
    {"name": "abc", "age": 3}, {"name": "abcd", "age": 3, "kind": "person"},
    {"name": "a", "age": 151, "kind": "person"},
]  # fmt: skip
NOT_IMPLEMENTED = [
    {"not": {"type": "null"}},
    {"if": {"type": "null"}, "then": False},
    {"type": "array", "contains": {"type": "null"}},
    {"type": "array", "uniqueItems": True},
    {"type": "object", "propertyNames": {"maxLength": 3}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"type": "object", "unevaluatedProperties": False},
    {"$ref": "https://example.com/schema.json"},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
]


def _params(**fields: object) -> StructuredOutputsParams:
    return StructuredOutputsParams(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_it_accepts_what_the_schema_allows(byte_level: GrammarModel, schema: dict) -> None:
    new = byte_level.compiler.compile(_params(json=schema))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    accepted = [value for value in VALUES if byte_level.accepts(new(), json.dumps(value, ensure_ascii=False))]
    assert accepted == [value for value in VALUES if validator.is_valid(value)]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_may_be_indented_but_not_filled_with_blanks(byte_level: GrammarModel, indent: int | str | None) -> None:
    new = byte_level.compiler.compile(_params(json_object=True))
    assert byte_level.accepts(new(), json.dumps({"a": [1, {"b": None}], "c": "d e"}, indent=indent))
    assert not byte_level.accepts(new(), '{"a":\n\n\n1}')
    assert not byte_level.accepts(new(), "[1]")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.sampled_from(SCHEMAS), seed=st.integers(0, 10**6))
def test_every_output_that_ends_is_valid(model: GrammarModel, schema: dict, seed: int) -> None:
    tokens, ended = model.walk(model.compiler.compile(_params(json=schema))(), random.Random(seed), most=200)
    if ended:
        jsonschema.validate(json.loads(model.text(tokens)), schema)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.sampled_from(SCHEMAS), seed=st.integers(0, 10**6))
def test_a_mask_is_a_function_of_the_tokens(model: GrammarModel, schema: dict, seed: int) -> None:
    """The same whether masks were computed in between or not, and whatever other outputs did."""
    new = model.compiler.compile(_params(json=schema))
    grown = new()
    tokens, _ = model.walk(new(), random.Random(seed), most=30)
    for length, token in enumerate(tokens):
        replayed = new()
        for earlier in tokens[:length]:
            replayed.accept(earlier)
        assert model.allowed(replayed).tolist() == model.allowed(grown).tolist()
        grown.accept(token)


@pytest.mark.parametrize("pattern", [r"[a-c]{2,4}", r"(the |fox)*\.", r"\d+(\.\d+)?", r"日*本?é"])
def test_an_output_may_end_exactly_where_the_regex_matches(model: GrammarModel, pattern: str) -> None:
    new = model.compiler.compile(_params(regex=pattern))
    for seed in range(10):
        constraint, draw, tokens = new(), random.Random(seed), []
        for _ in range(12):
            allowed = model.allowed(constraint)
            spelt = b"".join(model.bytes[token] for token in tokens)
            whole = re.fullmatch(pattern, spelt.decode(errors="replace")) is not None
            assert (model.eos in allowed) == whole
            if len(more := allowed[allowed != model.eos]) == 0:
                break
            tokens.append(int(draw.choice(more)))
            constraint.accept(tokens[-1])


def test_choices(model: GrammarModel) -> None:
    choices = ["yes", "no", 'a "quoted" one\\', "zwei\nlines", "日本"]
    new = model.compiler.compile(_params(choice=choices))
    for text in choices:
        assert model.accepts(new(), text)
    for text in ("", "y", "yesno", "maybe"):
        assert not model.accepts(new(), text)


@pytest.mark.parametrize("grammar", ['root ::= "a" ("," root)?', 'start: "a" ("," start)?'], ids=["gbnf", "lark"])
def test_grammars(model: GrammarModel, grammar: str) -> None:
    new = model.compiler.compile(_params(grammar=grammar))
    assert model.accepts(new(), "a")
    assert model.accepts(new(), "a,a,a")
    assert not model.accepts(new(), "a,")
    assert not model.accepts(new(), "b")


@pytest.mark.parametrize(
    "fields",
    [
        {"json": {"enum": ["a", 1]}},
        {"regex": '"a"|1'},
        {"choice": ['"a"', "1"]},
        {"grammar": 'root ::= "\\"a\\"" | "1"'},
    ],
    ids=["json", "regex", "choice", "grammar"],
)
def test_reasoning_may_come_first(model: GrammarModel, fields: dict) -> None:
    closed = model.compiler.compile(_params(**fields, thinking=ThinkingTags("<think>", "</think>", opened=False)))
    opened = model.compiler.compile(_params(**fields, thinking=ThinkingTags("<think>", "</think>", opened=True)))
    for new, text, accepted in [
        (closed, '"a"', True),
        (closed, "1", True),
        (closed, "<think>{hm}</think>\n\n1", True),
        (closed, "hm</think>1", False),
        (closed, "<think>hm</think>\n\n", False),
        (closed, "<think>1", False),
        (opened, "hm </thin </think>\n\n1", True),
        (opened, "</think>1", True),
        (opened, "1", False),
    ]:
        assert model.accepts(new(), text) == accepted, text


def test_only_tokens_of_the_text_are_drawn(model: GrammarModel) -> None:
    """No special token, and none of the ids beyond the tokenizer's."""
    allowed = set(model.allowed(model.compiler.compile(_params(regex="(?s:.*)"))()))
    assert model.eos in allowed
    assert not allowed & (model.tokenizer.special_ids - {model.eos})
    assert all(model.bytes[token] for token in allowed - {model.eos})


def test_a_text_that_must_come_is_spelt_as_the_tokenizer_spells_it(model: GrammarModel) -> None:
    constraint = model.compiler.compile(_params(regex="the fox"))()
    tokens = []
    while (allowed := model.allowed(constraint).tolist()) != [model.eos]:
        tokens.append(allowed[0])
        constraint.accept(allowed[0])
    assert model.text(tokens) == "the fox"
    assert len(tokens) < len("the fox")


@pytest.mark.parametrize("schema", NOT_IMPLEMENTED, ids=json.dumps)
def test_keywords_that_are_not_implemented_are_errors(byte_level: GrammarModel, schema: dict) -> None:
    with pytest.raises(RequestError, match=r"structured_outputs\.json: "):
        byte_level.compiler.compile(_params(json=schema))
