"""The executor on an emulated GPU: what it computes, keeps and gives back, and what it says when the driver fails."""

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import ILLEGAL_ADDRESS, LAUNCH_FAILED, OUT_OF_MEMORY, EmulatedGpu

from enginesmith import LLM
from enginesmith.errors import EngineError, ParameterError
from enginesmith.plugins.sampling.reference import Sampling, log_softmax, rank, sample
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


ROW = expected([3])[0]
LIKELIEST = int(ROW.argmax())
SAMPLINGS = {
    "temperature": ({"temperature": 0.7}, {}),
    "top_k and top_p": ({"temperature": 1.3, "top_k": 5, "top_p": 0.8}, {}),
    "min_p": ({"temperature": 2.0, "min_p": 0.2}, {}),
    "penalties": ({"temperature": 1.0, "repetition_penalty": 1.5, "presence_penalty": 0.4}, {}),
    "frequency": ({"temperature": 0.0, "frequency_penalty": 2.0}, {}),
    "bias": ({"temperature": 0.0, "logit_bias": {LIKELIEST: -100.0}}, {}),
    "n-grams": ({"temperature": 0.0, "no_repeat_ngram_size": 1}, {}),
    "bad words": ({"temperature": 0.0}, {"bad_words": ((LIKELIEST,),)}),
    "mask": ({"temperature": 0.0}, {"allowed": frozenset({2, 9})}),
}
"""Parameters, and what `Sampling` has beside them."""


@pytest.mark.parametrize("name", SAMPLINGS)
def test_other_tokens_are_those_of_the_sampler(executor: CudaExecutor, name: str):
    """The reference draws from the same logits; two neighbours in the step are greedy."""
    options, others = SAMPLINGS[name]
    params, history = SamplingParams(**options), [4, LIKELIEST, 7, LIKELIEST]
    executor.step([whole([5, 3, 6])], [0, 1, 2])
    sequence = SequenceSampling(params, 11, array("i", history), 2, others.get("bad_words", ()))
    words = np.zeros(1, np.uint32)
    if "allowed" in others:
        words[0] = sum(1 << token for token in others["allowed"])
        sequence.mask = words.ctypes.data
    greedy = draws_of(2)
    drawn = executor.sample([greedy[0], Draw(1, sequence, 4), greedy[1]._replace(row=2)])
    same = {item.name: options[item.name] for item in fields(Sampling) if item.name in options}
    bias = options.get("logit_bias", {})
    told = Sampling(**same, prompt=(4, LIKELIEST), output=(7, LIKELIEST), bias=bias, seed=11, position=2, **others)
    wanted = sample(executor.logits()[1], told)
    assert [one.token for one in drawn] == [int(expected([5])[0].argmax()), wanted, int(expected([6], 2)[0].argmax())]


def test_log_probabilities(executor: CudaExecutor):
    """Of a greedy token and the two best, and of a token that is given, as for a prompt."""
    executor.step([whole([3, 1])], [0, 1])
    (row, other) = executor.logits()
    sequence = draws_of(1)[0].sampling
    drawn = executor.sample([Draw(0, sequence, 2, num_logprobs=2), Draw(1, sequence, 2, token=5, num_logprobs=0)])
    best = np.argsort(-row, kind="stable")[:2]
    assert (drawn[0].token, drawn[0].rank) == (best[0], 1)
    assert [token for token, _ in drawn[0].top] == best.tolist()
    np.testing.assert_allclose([p for _, p in drawn[0].top], log_softmax(row)[best], rtol=1e-5)
    assert (drawn[1].token, drawn[1].rank, drawn[1].top) == (5, rank(other, 5), ())
    assert drawn[1].logprob == pytest.approx(log_softmax(other)[5], rel=1e-5)


def test_options_that_leave_no_token_are_named(executor: CudaExecutor):
    executor.step([whole([3, 1])], [0, 1])
    everything = dict.fromkeys(range(VOCABULARY), -np.inf)
    with pytest.raises(ParameterError, match="logit_bias"):
        executor.sample([draws_of(1)[0], *draws_of(1, GREEDY.replace(logit_bias=everything), 1)])


# ---- the host ahead of the device


def test_a_step_returns_before_the_device_has_done_it(executor: CudaExecutor, gpu: EmulatedGpu):
    """The next one is filled in meanwhile; the third waits for the first, whose buffer it takes."""
    first_tokens: list[int] = []
    address = executor._device_inputs + executor._inputs[0].arrays.offset("input_ids")
    gpu.watch = lambda: first_tokens.append(ctypes.c_int32.from_address(address).value)
    before = gpu.launches
    executor.step([whole([5, 5])], [])
    executor.step([whole([6, 6])], [])
    assert gpu.launches == before
    executor.step([whole([7, 7])], [1])
    first_done = gpu.launches
    assert first_done > before
    assert [sample.token for sample in executor.sample(draws_of(1))] == [int(expected([7], 1)[0].argmax())]
    assert gpu.launches > first_done
    assert first_tokens == sorted(first_tokens)
    assert set(first_tokens) == {5, 6, 7}


def test_a_fault_while_the_host_is_ahead_ends_the_step_that_waits(executor: CudaExecutor, gpu: EmulatedGpu):
    executor.step([whole([3, 1])], [1])
    gpu.fail(1, OUT_OF_MEMORY)
    with pytest.raises(EngineError, match="cuEventSynchronize"):
        executor.sample(draws_of(1))
    wanted = int(expected([3, 1])[1].argmax())
    executor.step([whole([3, 1])], [1])
    assert executor.sample(draws_of(1))[0].token == wanted


def test_an_engine_closed_ahead_of_the_device_gives_all_back(small_engine: Path, gpu: EmulatedGpu):
    executor = open_executor(small_engine)
    executor.step([whole([3, 1])], [1])
    executor.close()
    assert gpu.held == 0


def test_warm_up_captures_the_graphs_of_all_sizes(small_engine: Path, gpu: EmulatedGpu):
    before = gpu.graphs
    with LLM(small_engine, warm_up=True) as llm:
        graphs = llm.engine.executor._graphs._graphs  # type: ignore[attr-defined]
        assert sorted(graphs) == [1, 2, 4, 6]
        assert gpu.graphs == before + 4
        captured = dict(graphs)
        (output,) = llm.generate([[3]], GREEDY.replace(max_tokens=2, ignore_eos=True))
        assert output.outputs[0].token_ids[0] == expected([3])[0].argmax()
        assert graphs == captured
    assert gpu.held == 0


def test_a_device_without_room_for_graphs_decodes_without(small_engine: Path, gpu: EmulatedGpu):
    executor = open_executor(small_engine)
    gpu.fail(3, OUT_OF_MEMORY)
    executor.warm_up()
    assert executor._graphs is not None
    assert executor._graphs.bucket(1) == 0
    np.testing.assert_allclose(decode(executor, [4, 9]), [expected([t], 3)[0] for t in (4, 9)], rtol=1e-5, atol=1e-6)
    executor.close()


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


def _work(path: Path, gpu: EmulatedGpu) -> tuple[np.ndarray, np.ndarray, int]:
    """All that an engine does: opening, a prompt, two decodes of a size, and the end; with the calls before that."""
    executor = open_executor(path)
    try:
        executor.step([whole([3, 1, 4])], [])
        executor.step([whole([3, 1, 4])], [2])
        first = executor.logits()
        drawn = executor.sample(draws_of(1))[0].token
        assert drawn == expected([3, 1, 4])[2].argmax()
        return first, np.concatenate([decode(executor, [5, 6]), decode(executor, [7, 8])]), gpu.calls
    finally:
        executor.close()


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, LAUNCH_FAILED], ids=["out of memory", "launch failure"])
def test_whatever_call_fails_is_an_error_and_all_is_given_back(small_engine: Path, gpu: EmulatedGpu, error: int):
    first, second, calls = _work(small_engine, gpu)
    total = gpu.calls
    assert total > calls > 30
    survived = []
    for at in range(1, total + 1):
        gpu.fail(at, error)
        with suppress(EngineError):
            found = _work(small_engine, gpu)
            survived.append(at)
            np.testing.assert_array_equal(found[0], first)
            np.testing.assert_array_equal(found[1], second)
        assert gpu.held == 0, f"call {at} failed"
        gpu.fail(0, 0)
    while_working = [at for at in survived if at <= calls]
    if error == OUT_OF_MEMORY:  # a graph that has no room is done without
        assert while_working
    else:
        assert not while_working


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
    sizes = r"it needs 1\d\.\d kB: 2\.3 kB of weights, .* 8\.2 kB of KV cache; 4\.6 kB of 4\.6 kB were free"
    with pytest.raises(EngineError, match=rf"Emulated GPU has no room .*{sizes}.*kv_cache_memory"):
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
    assert gpu.held == 0


def test_a_share_that_others_have_part_of_is_refused(small_engine: Path, gpu: EmulatedGpu):
    """As vLLM does: the share is of all memory, and must be free."""
    gpu.reset(memory=1 << 20)
    facts = cuda_facts(open_engine(small_engine).manifest)
    executor = open_executor(small_engine)
    with pytest.raises(
        EngineError, match=r"0\.99 asks for 1\.0 MB of the 1\.0 MB .* are free.*memory_utilization to 0\.9"
    ):
        cache_memory(RuntimeConfig(memory_utilization=0.99), facts)
    assert cache_memory(RuntimeConfig(memory_utilization=0.5), facts)[0] > 0
    executor.close()
    assert gpu.held == 0
