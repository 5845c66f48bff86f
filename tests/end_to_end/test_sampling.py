"""Sampling on a real model, against the logits of Transformers and the rules in NumPy or in Transformers itself."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from real_prompts import REAL_PROMPTS, chat

from enginesmith import LLM, SamplingParams
from enginesmith.plugins.sampling.reference import log_softmax

pytestmark = pytest.mark.slow

Logits = Callable[[list[int]], np.ndarray]
PROMPTS = REAL_PROMPTS[:2] + REAL_PROMPTS[7:8] + REAL_PROMPTS[16:17]
NEAR = 1e-3  # logits of engine and Transformers differ by less: closer ones may change places


def before_each(hf_logits: Logits, prompt: list[int], output: list[int]) -> np.ndarray:
    """Transformers' logits [len(output), vocab] that each output token was chosen from."""
    return hf_logits([*prompt, *output])[len(prompt) - 1 : -1].astype(np.float64)


def test_logprobs_are_those_of_transformers(llm: LLM, hf_logits: Logits):
    for result in llm.generate(PROMPTS, SamplingParams(temperature=1, seed=3, max_tokens=8, logprobs=5)):
        output = result.outputs[0]
        rows = before_each(hf_logits, result.prompt_token_ids, output.token_ids)
        assert output.logprobs is not None
        for token, entries, row in zip(output.token_ids, output.logprobs, rows, strict=True):
            expected = log_softmax(row)
            assert token in entries
            assert {entry.rank for entry in entries.values()} >= {1, 2, 3, 4, 5}
            for id, entry in entries.items():
                assert entry.logprob == pytest.approx(expected[id], abs=NEAR)
                assert (row > row[id] + NEAR).sum() < entry.rank <= (row >= row[id] - NEAR).sum()


def test_penalties_and_bias_choose_as_their_formulas_say(llm: LLM, hf_logits: Logits):
    banned = llm.tokenizer.encode(" the")[0]
    params = SamplingParams(
        temperature=0, max_tokens=32, ignore_eos=True,
        presence_penalty=0.7, frequency_penalty=1.3, logit_bias={banned: float("-inf"), 28: -1.5},
    )  # fmt: skip
    for result in llm.generate(PROMPTS, params):
        output = result.outputs[0].token_ids
        assert banned not in output
        for i, row in enumerate(before_each(hf_logits, result.prompt_token_ids, output)):
            row[banned], row[28] = -np.inf, row[28] - 1.5
            for token, count in Counter(output[:i]).items():
                row[token] -= 1.3 * count + 0.7
            assert row[output[i]] > row.max() - NEAR


def test_repetition_penalty_is_that_of_transformers(llm: LLM, hf_generate: Callable[..., list[int]]):
    for result in llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16, repetition_penalty=1.4)):
        expected = hf_generate(result.prompt_token_ids, 16, repetition_penalty=1.4)
        assert result.outputs[0].token_ids == expected


def test_draws_stay_among_what_transformers_would_keep(llm: LLM, hf_logits: Logits):
    import torch
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    params = SamplingParams(temperature=1.6, max_tokens=24, ignore_eos=True, seed=11)
    cases = {
        "top_k": (params.replace(top_k=3), [TopKLogitsWarper(3)]),
        "top_p": (params.replace(top_p=0.6), [TopPLogitsWarper(0.6)]),
        "min_p": (params.replace(min_p=0.2), [MinPLogitsWarper(0.2)]),
        "all": (params.replace(top_k=20, top_p=0.9), [TopKLogitsWarper(20), TopPLogitsWarper(0.9)]),
    }
    for settings, warpers in cases.values():
        result = llm.generate(PROMPTS[0], settings)[0]
        output = result.outputs[0].token_ids
        scores: Any = torch.tensor(before_each(hf_logits, result.prompt_token_ids, output))
        for warper in [TemperatureLogitsWarper(1.6), *warpers]:
            scores = warper(None, scores)
        assert torch.isfinite(scores[range(len(output)), output]).all()


def test_draws_come_as_often_as_they_are_likely(llm: LLM, hf_logits: Logits):
    count = 300
    params = [SamplingParams(temperature=0.8, top_k=6, max_tokens=1, seed=seed) for seed in range(count)]
    results = llm.generate([PROMPTS[0]] * count, params)
    drawn = Counter(result.outputs[0].token_ids[0] for result in results)
    row = hf_logits(results[0].prompt_token_ids)[-1].astype(np.float64) / 0.8
    best = np.argsort(-row)[:6]
    expected = count * np.exp(log_softmax(row[best]))
    assert sum(drawn[token] for token in best) == count
    chi_square = sum((drawn[token] - e) ** 2 / e for token, e in zip(best, expected, strict=True))
    assert chi_square < 30  # 5 degrees of freedom: one in 70,000


def test_end_of_sequence(llm: LLM, hf_generate: Callable[..., list[int]]):
    prompt = chat("What is 17 + 25?")  # the answer is short
    greedy = SamplingParams(temperature=0, max_tokens=50)
    natural = llm.generate(prompt, greedy)[0]
    tokens, stop = natural.outputs[0].token_ids, natural.outputs[0].finish_reason
    assert stop == "stop"
    assert tokens[-1] in llm.manifest.model.eos_token_ids
    longer = len(tokens) + 12
    held = llm.generate(prompt, greedy.replace(min_tokens=longer, max_tokens=longer))[0].outputs[0]
    assert held.token_ids == hf_generate(natural.prompt_token_ids, longer, min_new_tokens=longer)
    assert not set(held.token_ids) & set(llm.manifest.model.eos_token_ids)
    ignored = llm.generate(prompt, greedy.replace(ignore_eos=True, max_tokens=longer))[0].outputs[0]
    assert ignored.finish_reason == "length"
    assert ignored.token_ids == hf_generate(natural.prompt_token_ids, longer, eos_token_id=None)
