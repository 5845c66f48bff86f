"""Outputs of an engine that are held to a form."""

import json
from pathlib import Path

import pytest

from enginesmith.errors import ParameterError, RequestError
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.structured_output.params import StructuredOutputsParams

FORMS = [
    StructuredOutputsParams(regex="(the |quick ){2,4}"),
    StructuredOutputsParams(choice=["quick", "lazy the"]),
    StructuredOutputsParams(json={"type": "array", "items": {"type": "integer", "maximum": 999}, "maxItems": 5}),
]


def _params(form: StructuredOutputsParams, **more: object) -> SamplingParams:
    return SamplingParams(max_tokens=80, structured_outputs=form, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS, ids=["regex", "choice", "json"])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_outputs_have_their_form(llm: LLM, form: StructuredOutputsParams, temperature: float) -> None:
    params = [_params(form, temperature=temperature, seed=seed) for seed in range(12)]
    outputs = [output.outputs[0] for output in llm.generate(["the"] * len(params), params)]
    alone = [llm.generate("the", each)[0].outputs[0] for each in params]
    assert outputs == alone
    ended = [output.text for output in outputs if output.finish_reason == "stop"]
    assert ended
    for text in ended:
        if form.choice is not None:
            assert text in form.choice
        elif form.json is not None:
            assert all(number <= 999 for number in json.loads(text))
        else:
            assert set(text.split()) <= {"the", "quick"}


def test_streams_and_chats_too(llm: LLM) -> None:
    params = _params(FORMS[1], seed=1).replace(max_tokens=40)
    streamed = "".join(piece.text for piece in llm.stream("the", params))
    chat = llm.chat([{"role": "user", "content": "hi"}], params)[0].outputs[0].text
    assert {streamed, chat} <= {"quick", "lazy the"}


def test_a_form_may_leave_nothing_to_draw(llm: LLM) -> None:
    """Then that request fails, and those beside it do not."""
    (token,) = llm.tokenizer.encode("z", add_special_tokens=False)
    failing = _params(StructuredOutputsParams(regex="z"), logit_bias={token: float("-inf")})
    with pytest.raises(ParameterError, match="leaves no token to draw next, together with logit_bias") as caught:
        llm.generate("the", failing)
    assert caught.value.parameter == "structured_outputs"
    assert llm.generate("the", _params(FORMS[1]))[0].outputs[0].text in ("quick", "lazy the")


def test_what_cannot_be_compiled_is_refused_before_anything_runs(llm: LLM, toy_engine: Path) -> None:
    with pytest.raises(RequestError, match=r"structured_outputs\.regex: cannot be compiled"):
        llm.generate(["the", "the"], [_params(FORMS[0]), _params(StructuredOutputsParams(regex="("))])
    llm.compile_form(FORMS[0])
    with pytest.raises(RequestError, match=r"structured_outputs\.json: cannot be compiled"):
        llm.compile_form(StructuredOutputsParams(json={"not": {}}))


@pytest.mark.parametrize(
    "contradiction", [{"ignore_eos": True}, {"min_tokens": 2}, {"bad_words": ["a"]}, {"no_repeat_ngram_size": 2}]
)
def test_what_contradicts_a_form(contradiction: dict) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(contradiction))} contradicts structured_outputs"):
        _params(FORMS[0], **contradiction)
    with pytest.raises(RequestError, match="must be StructuredOutputsParams or None, got"):
        SamplingParams(structured_outputs={})  # type: ignore[arg-type]
