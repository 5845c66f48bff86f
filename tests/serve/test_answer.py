"""How an answer's form is found, and what holds it to that."""

import pytest

from enginesmith.errors import ParameterError, RequestError
from enginesmith.runtime.structured_output.params import StructuredOutputsParams, ThinkingTags
from enginesmith.serve.answer import AnswerFormat
from enginesmith.serve.tools.request import tool_request

TOOLS = [{"type": "function", "function": {"name": "f"}}]
ASKED = StructuredOutputsParams(regex="a+")


def test_forms_are_found_named_or_switched_off() -> None:
    template = '{{ "</think>" }}<tool_call>\n{"name": x'
    assert AnswerFormat.of(template) == AnswerFormat("hermes", "think")
    assert AnswerFormat.of(template, "none", "none") == AnswerFormat(None, None)
    assert AnswerFormat.of(template, "mistral", "magistral") == AnswerFormat("mistral", "magistral")
    assert AnswerFormat.of(None) == AnswerFormat(None, None)
    with pytest.raises(RequestError, match=r"--tool-parser must be one of hermes, llama3, .* or none, got"):
        AnswerFormat.of(template, "xml")
    with pytest.raises(RequestError, match=r"--reasoning-parser must be one of think, .* or none, got 'r1'"):
        AnswerFormat.of(template, None, "r1")


def test_what_holds_an_answer_to_its_form() -> None:
    plain, thinking = AnswerFormat("hermes", None), AnswerFormat("hermes", "think")
    none, auto = tool_request(None, None, None), tool_request(TOOLS, "auto", None)
    required = tool_request(TOOLS, "required", None)
    assert plain.structured_outputs(none, None, "") is None
    assert plain.structured_outputs(auto, ASKED, "") == ASKED
    held = thinking.structured_outputs(none, ASKED, "assistant:")
    assert held is not None
    assert held.source.thinking == ThinkingTags("<think>", "</think>", False)
    assert held.regex == "a+"
    held = thinking.structured_outputs(required, None, "assistant:<think>\n")
    assert held is not None
    assert held.grammar is not None
    assert held.thinking == ThinkingTags("<think>", "</think>", True)
    closed = thinking.structured_outputs(none, ASKED, "<think>\n\n</think>\n\n")
    assert closed is not None
    assert closed.thinking is None
    with pytest.raises(ParameterError, match="response_format: contradicts tool_choice"):
        plain.structured_outputs(required, ASKED, "")


def test_tools_of_a_model_that_knows_no_calls() -> None:
    tools = tool_request(TOOLS, None, None)
    for ask in (
        lambda: AnswerFormat(None, None).parser(tools, ""),
        lambda: AnswerFormat(None, None).structured_outputs(tools, None, ""),
    ):
        with pytest.raises(ParameterError, match="tools: this model's chat template teaches no form of calls"):
            ask()
    assert AnswerFormat(None, None).parser(tool_request(TOOLS, "none", None), "").push("x")[0].content == "x"


def test_which_texts_hold_special_tokens() -> None:
    tools, none = tool_request(TOOLS, None, None), tool_request(None, None, None)
    assert not AnswerFormat("hermes", "think").keeps_special_tokens(tools)
    assert AnswerFormat("mistral", None).keeps_special_tokens(tools)
    assert not AnswerFormat("mistral", None).keeps_special_tokens(none)
    assert AnswerFormat("mistral", "magistral").keeps_special_tokens(none)
