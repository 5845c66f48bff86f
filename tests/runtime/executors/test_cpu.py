"""The executor: limits it keeps from the library, and the library's errors."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginesmith.errors import EngineError, RequestError
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.executors.executor import Draw, SequenceSampling, SequenceSlice
from enginesmith.runtime.executors.sampler_abi import EsSample
from enginesmith.runtime.sampling_params import SamplingParams

TABLE = array("i", range(24))


def open_cpu_executor(path: Path) -> CpuExecutor:
    return CpuExecutor(path, open_engine(path).manifest, [24, 24], threads=1)


@pytest.fixture
def executor(toy_engine: Path) -> Iterator[CpuExecutor]:
    executor = open_cpu_executor(toy_engine)
    yield executor
    executor.close()


def whole(token_ids: array, start: int = 0) -> SequenceSlice:
    return SequenceSlice(token_ids, start, len(token_ids), [TABLE, TABLE])


def test_logits_are_a_copy(executor: CpuExecutor):
    executor.step([whole(array("i", [1, 2, 3]))], [0, 2])
    logits = executor.logits()
    assert logits.shape == (2, 300)
    kept = logits.copy()
    executor.step([whole(array("i", [9, 9, 9]))], [0, 2])
    assert (logits == kept).all()
    assert (executor.logits() != kept).any()


@pytest.mark.parametrize(
    "slices",
    [
        [whole(array("i", [1] * 17))],
        [whole(array("i", [1]))] * 7,
        [SequenceSlice(array("i", [1] * 97), 90, 97, [TABLE, TABLE])],
    ],
    ids=["tokens", "sequences", "position"],
)
def test_a_step_past_the_limits_never_reaches_the_library(executor: CpuExecutor, slices: list[SequenceSlice]):
    with pytest.raises(EngineError, match="exceeds"):
        executor.step(slices, [0])


def test_the_library_says_what_went_wrong(executor: CpuExecutor):
    freed = array("i", [-1, 1])
    with pytest.raises(EngineError, match="step of 1 tokens: toy: a visible block was freed"):
        executor.step([SequenceSlice(array("i", [1] * 5), 4, 5, [freed, freed])], [0])


def test_rows_to_sample_must_be_those_of_the_step(executor: CpuExecutor):
    sampling = SequenceSampling(SamplingParams(temperature=0), 0, array("i", [1]), 1)
    executor.step([whole(sampling.token_ids)], [0])
    assert len(executor.sample([Draw(0, sampling, 1)] * 2)) == 2
    with pytest.raises(EngineError, match="row 1 cannot be sampled: there is no such row of logits"):
        executor.sample([Draw(1, sampling, 1)])


def test_several_tokens_of_a_sequence(executor: CpuExecutor):
    """As if drawn one after another: speculative decoding asks for that."""
    tokens = array("i", [5, 6, 7, 8, 9])
    params = SamplingParams(temperature=1, repetition_penalty=1.5, no_repeat_ngram_size=2)
    executor.step([whole(tokens)], [2, 3, 4])
    together = executor.sample([Draw(row, SequenceSampling(params, 3, tokens, 3), 3 + row) for row in range(3)])
    apart = []
    for row in range(3):
        executor.step([whole(tokens)], [2 + row])
        apart += executor.sample([Draw(0, SequenceSampling(params, 3, tokens[: 3 + row], 3), 3 + row)])
    assert together == apart


def test_an_option_that_the_sampler_is_too_old_for(executor: CpuExecutor, monkeypatch: pytest.MonkeyPatch):
    assert executor._sampler.is_current
    monkeypatch.setattr(executor._sampler, "_known_size", EsSample.no_repeat_ngram_size.offset)
    executor.step([whole(array("i", [1]))], [0])
    for params in (SamplingParams(), SamplingParams(top_k=4, logprobs=1)):
        sampling = SequenceSampling(params, 0, array("i", [1]), 1)
        executor.sample([Draw(0, sampling, 1)])
    sampling = SequenceSampling(SamplingParams(no_repeat_ngram_size=2), 0, array("i", [1]), 1)
    with pytest.raises(RequestError, match="no_repeat_ngram_size: the engine's sampler is older than this option"):
        executor.sample([Draw(0, sampling, 1)])


def test_closing_twice_is_no_error(executor: CpuExecutor):
    executor.close()
    executor.close()


def test_a_closed_engine_says_so(executor: CpuExecutor):
    executor.close()
    with pytest.raises(EngineError, match="was closed"):
        executor.step([whole(array("i", [1]))], [0])


def test_an_engine_forgotten_is_closed(toy_engine: Path, monkeypatch: pytest.MonkeyPatch):
    closed: list[int] = []
    executor = open_cpu_executor(toy_engine)
    weights = executor._weights
    monkeypatch.setattr(weights, "close", lambda: closed.append(1))
    del executor
    assert closed == [1]


def test_what_the_sampler_is_told(executor: CpuExecutor):
    import ctypes

    plain = SequenceSampling(SamplingParams(temperature=0, top_k=-1), 5, array("i", [7, 8, 9, 10]), 3)
    params = SamplingParams(
        temperature=0.5, top_k=4, top_p=0.75, min_p=0.25, presence_penalty=0.5, logit_bias={2: -1.5}, logprobs=2
    )
    rich = SequenceSampling(params, 2**64 - 1, array("i", [1, 2, 3, 4, 5]), 2, bad_words=[[7], [8, 9]])
    rich.set_bias(ban=(0,))
    rich.mask = 4096
    args = executor._sampler._buffers.fill([Draw(3, plain, 4), Draw(1, rich, 5, num_logprobs=2)])

    def read(name: str, kind: Any) -> list[Any]:
        return list((kind * 2).from_address(getattr(args, name)))

    assert (args.num_draws, args.max_logprobs) == (2, 2)
    assert read("row", ctypes.c_int32) == [3, 1]
    assert read("given_token", ctypes.c_int32) == [-1, -1]
    assert read("mask", ctypes.c_uint64) == [0, 4096]
    assert read("bad_words_length", ctypes.c_int32) == [0, 5]
    words = int(read("bad_words", ctypes.c_void_p)[1])
    assert list((ctypes.c_int32 * 5).from_address(words)) == [1, 7, 2, 8, 9]
    assert read("position", ctypes.c_uint64) == [1, 3]
    assert read("prompt_length", ctypes.c_int32) == [3, 2]
    assert read("history_length", ctypes.c_int32) == [4, 5]
    assert read("seed", ctypes.c_uint64) == [5, 2**64 - 1]
    assert read("temperature", ctypes.c_float) == [0, 0.5]
    assert read("top_k", ctypes.c_int32) == [0, 4]
    assert read("top_p", ctypes.c_float) == [1, 0.75]
    assert read("min_p", ctypes.c_float) == [0, 0.25]
    assert read("repetition_penalty", ctypes.c_float) == [1, 1]
    assert read("presence_penalty", ctypes.c_float) == [0, 0.5]
    assert read("num_logprobs", ctypes.c_int32) == [-1, 2]
    none, history = read("history", ctypes.c_void_p)
    assert none is None
    assert list((ctypes.c_int32 * 5).from_address(int(history))) == [1, 2, 3, 4, 5]
    assert read("bias_length", ctypes.c_int32) == [0, 2]
    tokens, values = (int(read(name, ctypes.c_void_p)[1]) for name in ("bias_tokens", "bias_values"))
    assert list((ctypes.c_int32 * 2).from_address(tokens)) == [2, 0]
    assert list((ctypes.c_float * 2).from_address(values)) == [-1.5, float("-inf")]
