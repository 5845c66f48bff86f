"""Where a call is forced, a grammar makes the answer one, which the form's parser reads."""

import json
import random

import jsonschema
import pytest
from byte_tokenizer import EOS, write_byte_tokenizer
from grammar_model import GrammarModel

from enginesmith.runtime.structured_output.params import StructuredOutputsParams
from enginesmith.serve.answer import AnswerFormat, whole_answer
from enginesmith.serve.tools.registry import TOOL_PARSERS
from enginesmith.serve.tools.request import tool_request

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "place": {"$ref": "#/$defs/place"},
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {"place": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}},
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
    "set": {"type": "object", "properties": {"on": {"type": "boolean"}}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name} | ({} if name == "now" else {"parameters": schema})}
    for name, schema in SCHEMAS.items()
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GrammarModel:
    folder = tmp_path_factory.mktemp("bytes")
    write_byte_tokenizer(folder)
    return GrammarModel(folder, EOS)


@pytest.mark.parametrize("form", TOOL_PARSERS)
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_answers_are_calls(model: GrammarModel, form: str, choice: str) -> None:
    named = {"type": "function", "function": {"name": choice}}
    tools = tool_request(TOOLS, choice if choice == "required" else named, None)
    asked = AnswerFormat(form, None)
    params = asked.structured_outputs(tools, None, "prompt")
    assert params is not None
    new = model.compiler.compile(params)
    ended = numbers = 0
    for seed in range(25):
        tokens, whole = model.walk(new(), random.Random(seed), most=300)
        if not whole:
            continue
        ended += 1
        message = whole_answer(asked.parser(tools, "prompt"), model.text(tokens))
        assert message.content == ""
        numbers = max(numbers, len(message.tool_calls))
        for call in message.tool_calls:
            jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
            assert choice in ("required", call["function"]["name"])
    assert ended > 5
    assert (numbers > 1) == (choice == "required")


@pytest.mark.parametrize("form", TOOL_PARSERS)
def test_one_call_where_none_is_parallel(model: GrammarModel, form: str) -> None:
    tools = tool_request(TOOLS, "required", False)
    params = AnswerFormat(form, None).structured_outputs(tools, None, "")
    assert isinstance(params, StructuredOutputsParams)
    for seed in range(10):
        tokens, _ = model.walk(model.compiler.compile(params)(), random.Random(seed), most=300)
        assert len(whole_answer(AnswerFormat(form, None).parser(tools, ""), model.text(tokens)).tool_calls) <= 1
