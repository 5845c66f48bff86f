"""Text of a real model: the chat template, streaming by characters, stop strings."""

from typing import Any

import pytest
from real_prompts import REAL_PROMPTS

from enginesmith import LLM, SamplingParams

pytestmark = pytest.mark.slow

USER = {"role": "user", "content": "What is  2 + 2?\n"}
CONVERSATIONS = [
    [USER],
    [{"role": "system", "content": "Be brief. 日本 <&>"}, USER],
    [USER, {"role": "assistant", "content": "4 🙂"}, {"role": "user", "content": "And 3 + 3?"}],
]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chat_prompts_are_those_of_transformers(
    llm: LLM, hf_tokenizer: Any, conversation: list[dict[str, str]], add_generation_prompt: bool
):
    rendered = llm.render_chat(conversation, add_generation_prompt=add_generation_prompt)
    options = {"add_generation_prompt": add_generation_prompt}
    assert rendered == hf_tokenizer.apply_chat_template(conversation, tokenize=False, **options)
    tokens = hf_tokenizer.apply_chat_template(conversation, return_dict=False, **options)
    assert llm.tokenizer.encode(rendered, add_special_tokens=False) == tokens


def test_chat_answers_the_rendered_prompt(llm: LLM):
    params = SamplingParams(temperature=0, max_tokens=8)
    answer = llm.chat(CONVERSATIONS[0], params)[0]
    assert answer.prompt == llm.render_chat(CONVERSATIONS[0])
    streamed = list(llm.stream_chat(CONVERSATIONS[0], params))
    assert "".join(piece.text for piece in streamed) == answer.outputs[0].text
    assert [token for piece in streamed for token in piece.token_ids] == answer.outputs[0].token_ids


# Repeated, so that the model goes on with characters of which most are several tokens.
SCRIPTS = {"emoji": "🙂🚀🎉" * 12, "chinese": "東京都は日本の首都" * 6, "korean": "한국어 문장 " * 8}


@pytest.mark.parametrize("prompt", SCRIPTS.values(), ids=SCRIPTS)
def test_streaming_never_splits_a_character(llm: LLM, hf_tokenizer: Any, prompt: str):
    pieces = list(llm.stream(prompt, SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)))
    tokens = [token for piece in pieces for token in piece.token_ids]
    text = "".join(piece.text for piece in pieces)
    assert text == hf_tokenizer.decode(tokens, skip_special_tokens=True)
    assert all("\ufffd" not in piece.text for piece in pieces[:-1])  # the last may be cut off by max_tokens
    assert any(not piece.text for piece in pieces), "no character was held back: choose another prompt"
    assert any(ord(character) > 0x7F for character in text)


def test_a_stop_string_ends_the_text_where_it_begins(llm: LLM):
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompt = REAL_PROMPTS[1]
    whole = llm.generate(prompt, params)[0].outputs[0].text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 7]
    end = whole.index(stop)
    for include in (False, True):
        settings = params.replace(stop=["never seen", stop], include_stop_str_in_output=include)
        output = llm.generate(prompt, settings)[0].outputs[0]
        assert output.text == whole[: end + len(stop) * include]
        assert (output.finish_reason, output.stop_reason) == ("stop", stop)
        assert "".join(piece.text for piece in llm.stream(prompt, settings)) == output.text
