"""The executor on an emulated GPU: what it computes, keeps and gives back, and what it says when the driver fails."""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import ILLEGAL_ADDRESS, LAUNCH_FAILED, OUT_OF_MEMORY, EmulatedGpu

from enginesmith.errors import EngineError
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.executors.cuda.executor import CudaExecutor
from enginesmith.runtime.executors.cuda.facts import cuda_facts
from enginesmith.runtime.executors.executor import Draw, SequenceSampling, SequenceSlice
from enginesmith.runtime.loading import cache_memory
from enginesmith.runtime.runtime_config import RuntimeConfig
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.units import Bytes

from .conftest import LIMITS, TABLE, VOCABULARY, expected

BLOCKS = array("i", [0, 1])
GREEDY = SamplingParams(temperature=0)


def open_executor(path: Path, *, graphs: bool = True) -> CudaExecutor:
    return CudaExecutor(path, open_engine(path).manifest, [2], graphs=graphs)


@pytest.fixture
def executor(small_engine: Path, gpu: EmulatedGpu) -> Iterator[CudaExecutor]:
    executor = open_executor(small_engine)
    yield executor
    executor.close()
    assert gpu.held == 0


def whole(tokens: Sequence[int], start: int = 0) -> SequenceSlice:
    return SequenceSlice(array("i", tokens), start, len(tokens), [BLOCKS])


def draws_of(number: int, params: SamplingParams = GREEDY, first: int = 0) -> list[Draw]:
    logprobs = -1 if params.logprobs is None else params.logprobs
    sequences = [SequenceSampling(params, 7 + index, array("i", [1, 2]), 2) for index in range(number)]
    return [Draw(first + index, sequence, 2, num_logprobs=logprobs) for index, sequence in enumerate(sequences)]


def decode(executor: CudaExecutor, tokens: Sequence[int], position: int = 3) -> np.ndarray:
    """Logits of one step in which every sequence decodes a token."""
    executor.step([whole([0] * position + [token], position) for token in tokens], range(len(tokens)))
    return executor.logits()


def test_logits_and_tokens_of_a_prompt(executor: CudaExecutor):
    tokens = [3, 1, 4, 1, 5]
    executor.step([whole(tokens)], [1, 4])
    wanted = expected(tokens)[[1, 4]]
    np.testing.assert_allclose(executor.logits(), wanted, rtol=1e-5, atol=1e-6)
    assert [sample.token for sample in executor.sample(draws_of(2))] == wanted.argmax(axis=1).tolist()


def test_a_step_that_wants_no_logits(executor: CudaExecutor):
    executor.step([whole([3, 1])], [])
    assert executor.logits().shape == (0, VOCABULARY)
    assert executor.sample([]) == []


def test_decoding_takes_a_graph_for_a_batch_size_captured_once(executor: CudaExecutor, gpu: EmulatedGpu):
    before = gpu.graphs
    for tokens in ([5], [6, 7, 8], [9, 10, 11, 12], [1, 2, 3, 4, 5, 6]):
        for position in (3, 40):
            wanted = [expected([token], position)[0] for token in tokens]
            np.testing.assert_allclose(decode(executor, tokens, position), wanted, rtol=1e-5, atol=1e-6)
            tokens_drawn = [sample.token for sample in executor.sample(draws_of(len(tokens)))]
            assert tokens_drawn == np.argmax(wanted, axis=1).tolist()
    assert gpu.graphs == before + 8
    assert sorted(executor._graphs._graphs) == [1, 4, 6]  # type: ignore[union-attr]


def test_without_graphs_the_same(small_engine: Path, executor: CudaExecutor, gpu: EmulatedGpu):
    plain = open_executor(small_engine, graphs=False)
    before = gpu.graphs
    found = decode(plain, [4, 9, 2])
    assert gpu.graphs == before
    assert (found == decode(executor, [4, 9, 2])).all()
    plain.close()


def test_other_parameters_are_sampled_from_the_rows(executor: CudaExecutor):
    """Two rows that draw, one greedy with log probabilities, one whose likeliest token is banned."""
    tokens = [3, 1, 4, 1]
    wanted = expected(tokens)
    executor.step([whole(tokens)], [0, 1, 2, 3])
    rows = [
        *draws_of(2, SamplingParams(temperature=1.0)),
        *draws_of(1, SamplingParams(temperature=0, logprobs=2), 2),
        *draws_of(1, SamplingParams(temperature=0, logit_bias={int(wanted[3].argmax()): -np.inf}), 3),
    ]
    drawn, again = executor.sample(rows), executor.sample(rows)
    assert drawn == again
    assert drawn[2].token == wanted[2].argmax()
    probabilities = np.exp(wanted[2] - np.log(np.exp(wanted[2]).sum()))
    assert drawn[2].logprob == pytest.approx(np.log(probabilities.max()), rel=1e-4)
    assert [token for token, _ in drawn[2].top] == np.argsort(-wanted[2])[:2].tolist()
    assert drawn[3].token == np.argsort(-wanted[3])[1]


@pytest.mark.parametrize(
    "slices",
    [
        [whole([1] * 17)],
        [whole([1])] * 7,
        [SequenceSlice(array("i", [1] * 65), 60, 65, [BLOCKS])],
    ],
    ids=["tokens", "sequences", "position"],
)
def test_a_step_past_the_limits_never_reaches_the_device(executor: CudaExecutor, slices: list[SequenceSlice]):
    with pytest.raises(EngineError, match="exceeds"):
        executor.step(slices, [0])


def test_a_closed_engine_says_so(small_engine: Path, gpu: EmulatedGpu):
    executor = open_executor(small_engine)
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="was closed"):
        executor.step([whole([1])], [0])
    assert gpu.held == 0


# ---- a driver that fails


def _work(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """All that an engine does: opening, a prompt, two decodes of a size, and the end."""
    executor = open_executor(path)
    try:
        executor.step([whole([3, 1, 4])], [2])
        first = executor.logits()
        return first, np.concatenate([decode(executor, [5, 6]), decode(executor, [7, 8])])
    finally:
        executor.close()


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, LAUNCH_FAILED], ids=["out of memory", "launch failure"])
def test_whatever_call_fails_is_an_error_and_all_is_given_back(small_engine: Path, gpu: EmulatedGpu, error: int):
    first, second = _work(small_engine)
    total = gpu.calls
    assert total > 30
    survived = []
    for at in range(1, total + 1):
        gpu.fail(at, error)
        with suppress(EngineError):
            found = _work(small_engine)
            survived.append(at)
            np.testing.assert_array_equal(found[0], first)
            np.testing.assert_array_equal(found[1], second)
        assert gpu.held == 0, f"call {at} failed"
        gpu.fail(0, 0)
    if error == OUT_OF_MEMORY:  # a graph that has no room is done without
        assert survived
    else:
        assert not survived


def test_a_step_that_fails_leaves_the_next_one_whole(executor: CudaExecutor, gpu: EmulatedGpu):
    """An error that does not break the context ends one step, at whatever call it comes."""
    wanted = decode(executor, [4, 9, 2])
    gpu.fail(0, 0)
    executor.step([whole([3, 1, 4])], [2])
    for at in range(1, gpu.calls + 1):
        gpu.fail(at, OUT_OF_MEMORY)
        with pytest.raises(EngineError, match="no memory left"):
            executor.step([whole([3, 1, 4])], [2])
        assert (decode(executor, [4, 9, 2]) == wanted).all()


def test_a_broken_context_fails_every_step_until_the_engine_is_opened_again(small_engine: Path, gpu: EmulatedGpu):
    executor = open_executor(small_engine)
    gpu.fail(2, ILLEGAL_ADDRESS)
    for _ in range(2):
        with pytest.raises(EngineError, match="the GPU failed in"):
            executor.step([whole([3, 1, 4])], [2])
    executor.close()
    assert gpu.held == 0
    executor = open_executor(small_engine)
    executor.step([whole([3, 1, 4])], [2])
    np.testing.assert_allclose(executor.logits(), expected([3, 1, 4])[2:], rtol=1e-5, atol=1e-6)
    executor.close()


def test_a_device_that_is_too_small_is_named_with_what_is_needed(small_engine: Path, gpu: EmulatedGpu):
    gpu.reset(memory=2 * TABLE.nbytes)
    with pytest.raises(EngineError, match=r"(?s)Emulated GPU has no room .* 8\.2 kB of KV cache.*kv_cache_memory"):
        open_executor(small_engine)
    assert gpu.held == 0


# ---- machines that cannot run the engine


def test_another_compute_capability_is_named_with_the_command_that_helps(small_engine: Path, gpu: EmulatedGpu):
    gpu.reset(sm=120)
    with pytest.raises(EngineError, match=r"of compute capability 9\.0, but Emulated GPU has 12\.0; .*--sm 120"):
        open_engine(small_engine)


def test_a_driver_older_than_the_cubins_is_named(small_engine: Path, gpu: EmulatedGpu):
    gpu.reset(driver=12090)
    with pytest.raises(EngineError, match=r"compiled by CUDA 13\.\d, but .* knows CUDA 12\.9; install a driver"):
        open_engine(small_engine)


def test_a_driver_without_a_gpu(small_engine: Path, gpu: EmulatedGpu):
    gpu.reset(devices=0)
    with pytest.raises(EngineError, match="sees no GPU"):
        open_engine(small_engine)


def test_limits_of_the_small_engine_are_those_of_its_manifest(small_engine: Path, gpu: EmulatedGpu):
    assert open_engine(small_engine).manifest.limits == LIMITS


def test_the_cache_takes_what_a_share_of_the_device_leaves(small_engine: Path, gpu: EmulatedGpu):
    facts = cuda_facts(open_engine(small_engine).manifest)
    beside = facts.weights_bytes + facts.arena_bytes
    left, source = cache_memory(RuntimeConfig(), facts)
    assert left == int(0.9 * (8 << 30)) - beside
    assert source.startswith(
        "what memory_utilization 0.9 of the 8.6 GB of Emulated GPU leaves beside 2.3 kB of weights"
    )
    assert cache_memory(RuntimeConfig(memory_utilization=0.5), facts)[0] == (4 << 30) - beside
    assert cache_memory(RuntimeConfig(kv_cache_memory=Bytes(7)), facts) == (7, "kv_cache_memory")
