"""What SamplingParams ask for, through the whole engine: n, log probabilities of the prompt, bans, constraints."""

from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.errors import EngineError, RequestError
from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.outputs import Logprob
from enginesmith.runtime.sampling_params import SamplingParams

PROMPT = list(range(100, 141))
DRAWN = SamplingParams(seed=7, max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module", params=["cached", "no prefix cache", "preempted"])
def shared(toy_engine: Path, request: pytest.FixtureRequest):
    options = {
        "cached": {},
        "no prefix cache": {"prefix_cache": False},
        "preempted": {"kv_cache_memory": 3200, "capacity_policy": CapacityPolicy.MAX_UTILIZATION},
    }
    with LLM(toy_engine, threads=1, **options[request.param]) as llm:
        yield llm


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 8),
    length=st.integers(1, 41),
    seed=st.integers(0, 2**64 - 1),
    prompt_logprobs=st.sampled_from([None, 0, 2]),
    others=st.integers(0, 3),
)
def test_n_outputs_are_those_of_n_requests(
    shared: LLM, n: int, length: int, seed: int, prompt_logprobs: int | None, others: int
):
    params = DRAWN.replace(seed=seed, max_tokens=9, logprobs=1, prompt_logprobs=prompt_logprobs)
    prompt = PROMPT[:length]
    result, *_ = shared.generate([prompt] * (1 + others), params.replace(n=n))
    assert [output.index for output in result.outputs] == list(range(n))
    for index, output in enumerate(result.outputs):
        (alone,) = shared.generate([prompt], params.replace(seed=(seed + index) % 2**64))
        output.index = 0
        assert output == alone.outputs[0]
        assert result.prompt_logprobs == alone.prompt_logprobs
    assert shared.engine.kv.usage == 0


def test_the_outputs_of_a_prompt_share_its_blocks(toy_engine: Path):
    with LLM(toy_engine, threads=1) as llm:
        llm.generate([PROMPT], DRAWN.replace(n=6, max_tokens=2))
        totals = llm.stats().totals
        assert totals.prompt_tokens == 6 * 41
        assert totals.cached_tokens == 5 * 40
        assert totals.iteration_tokens.sum == 41 + 5 + 6


def test_streams_of_several_outputs(llm: LLM):
    params = DRAWN.replace(n=3, max_tokens=12)
    whole = llm.generate([PROMPT], params)[0].outputs
    pieces = list(llm.stream(PROMPT, params))
    for index, output in enumerate(whole):
        own = [piece for piece in pieces if piece.index == index]
        assert [token for piece in own for token in piece.token_ids] == output.token_ids
        assert "".join(piece.text for piece in own) == output.text
        assert [piece.finish_reason for piece in own if piece.finish_reason] == ["length"]


def test_prompt_logprobs_are_of_the_raw_logits(shared: LLM):
    params = DRAWN.replace(prompt_logprobs=2, max_tokens=3)
    logits = shared.compute_logits(PROMPT).astype(np.float64)
    exact = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for _ in range(2):  # a warm cache would have no logits to show
        result, plain = shared.generate([PROMPT] * 2, [params, params.replace(prompt_logprobs=None)])
        assert result.outputs == plain.outputs
        assert plain.prompt_logprobs is None
        assert result.prompt_logprobs is not None
        first, *entries = result.prompt_logprobs
        assert first is None
        assert len(entries) == 40
        for position, entry in enumerate(entries):
            row, token = exact[position], PROMPT[position + 1]
            best = np.argsort(-row, kind="stable")[:2].tolist()
            assert entry is not None
            assert set(entry) == {token, *best}
            for found, logprob in entry.items():
                assert logprob == Logprob(
                    pytest.approx(row[found], abs=1e-4),  # type: ignore[arg-type]
                    1 + int((row > row[found]).sum()),
                    shared.tokenizer.decode_token(found),
                )


def test_no_ngram_comes_twice(llm: LLM):
    params = SamplingParams(temperature=0, max_tokens=50, logit_bias={5: 100, 6: 50}, ignore_eos=True)
    repeated = llm.generate([[5, 6, 5]], params)[0].outputs[0].token_ids
    assert set(repeated) == {5}
    tokens = [5, 6, 5, *llm.generate([[5, 6, 5]], params.replace(no_repeat_ngram_size=2))[0].outputs[0].token_ids]
    pairs = list(pairwise(tokens))
    assert len(set(pairs)) == len(pairs)
    assert tokens[3] == 5  # (5, 6) was there


def test_bad_words_do_not_come(llm: LLM):
    free = llm.generate("stop here", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))[0].outputs[0]
    words = [word for word in free.text.split() if word.isascii() and word.isalnum()][:3]
    assert words
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, bad_words=words)
    held = llm.generate("stop here", params)[0].outputs[0]
    assert held.token_ids != free.token_ids
    for word in words:
        for text in (word, " " + word):
            ids = llm.tokenizer.encode(text, add_special_tokens=False)
            spans = [held.token_ids[i : i + len(ids)] for i in range(len(held.token_ids))]
            assert ids not in spans or len(ids) != len(llm.tokenizer.encode(word, add_special_tokens=False))


class Alternating:
    """Allows odd tokens, then even ones, and so on; fails after `failing` tokens."""

    def __init__(self, vocab_size: int, failing: int = 1000) -> None:
        odd = np.packbits(np.arange(-(-vocab_size // 32) * 32) % 2, bitorder="little").view(np.uint32)
        self._masks = [array("I", odd.tolist()), array("I", (~odd).tolist())]
        self.accepted: list[int] = []
        self._failing = failing

    def mask(self) -> int | None:
        if len(self.accepted) == self._failing:
            raise EngineError("the constraint gave up")
        return self._masks[len(self.accepted) % 2].buffer_info()[0]

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def constrained(llm: LLM, make: Callable[[], Alternating], params: SamplingParams = DRAWN):
    stream = llm._admission.admit(PROMPT, params, constraint=make)
    llm._loop.submit([stream])
    return stream


def test_constraints_hold_each_output(llm: LLM):
    made: list[Alternating] = []

    def make() -> Alternating:
        made.append(Alternating(300))
        return made[-1]

    free = llm.generate([PROMPT], DRAWN)[0].outputs
    stream, failing = constrained(llm, make, DRAWN.replace(n=3)), constrained(llm, lambda: Alternating(300, failing=4))
    assert llm.generate([PROMPT], DRAWN)[0].outputs == free
    llm.drain(60)
    for output, constraint in zip(stream.whole().outputs, made, strict=True):
        assert output.token_ids == constraint.accepted
        assert [token % 2 for token in output.token_ids] == [1, 0] * 10
    assert len(failing.requests[0].token_ids) == 41 + 4
    with pytest.raises(EngineError, match="the constraint gave up"):
        failing.whole()
    assert llm.engine.kv.usage == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, r"n must be an integer in \[1, 128\], got 0"),
        ({"n": 129}, "got 129"),
        ({"prompt_logprobs": 21}, r"prompt_logprobs must be an integer in \[0, 20\], got 21"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be an integer at least 0, got -1"),
        ({"bad_words": [""]}, "bad_words must hold non-empty strings, got ''"),
        ({"bad_words": "word"}, "bad_words must be a list, got 'word'"),
    ],
)
def test_bad_options(options: dict[str, object], message: str):
    with pytest.raises(RequestError, match=message):
        SamplingParams(**options)  # type: ignore[arg-type]
