"""The executor: limits it keeps from the library, and the library's errors."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.executors.executor import SampleRow, SequenceSlice
from enginesmith.runtime.sampling_params import SamplingParams

TABLE = array("i", range(24))


@pytest.fixture
def executor(toy_engine: Path) -> Iterator[CpuExecutor]:
    executor = CpuExecutor(open_engine(toy_engine), [24, 24], threads=1)
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
    row = SampleRow(SamplingParams(temperature=0), 0, array("i", [1]), 1)
    executor.step([whole(row.token_ids)], [0])
    assert len(executor.sample([row])) == 1
    with pytest.raises(EngineError, match="2 rows to sample, but the last step kept 1"):
        executor.sample([row, row])


def test_closing_twice_is_no_error(executor: CpuExecutor):
    executor.close()
    executor.close()
