"""The sampling kernel: NumPy's tokens, the right distribution, ties, faults and log probabilities."""

import ctypes
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from enginesmith.plugins.sampling.reference import Sampling, kept, log_softmax, philox4x32, rank, sample, uniform
from enginesmith.runtime.executors.sampler_abi import EsSample

DRIVER = """
#include "cpu/thread_pool.h"
#include "sampling/cpu/sampling.h"
#include <cstring>
#include <memory>
extern "C" int run(int threads, const float* logits, int rows, int64_t vocab, const EsSample* args, char* message) {
  es::ThreadPool pool(threads);
  const auto run = [](void* own, int64_t tasks, void (*task)(void*, int64_t, int), void* context) {
    static_cast<es::ThreadPool*>(own)->run(tasks, [&](int64_t index, int worker) { task(context, index, worker); });
  };
  const EsParallel parallel{&pool, threads, run};
  std::unique_ptr<float[]> scratch(new float[es::sample_scratch_floats(threads, vocab)]);
  std::memset(scratch.get(), 0xff, sizeof(float) * es::sample_scratch_floats(threads, vocab));
  std::string error;
  const int status = es::sample(parallel, logits, rows, vocab, *args, scratch.get(), &error);
  std::strncpy(message, error.c_str(), 199);
  return status;
}
extern "C" void philox(const uint32_t* counter, uint64_t key, uint32_t* out) {
  const auto x = es::philox4x32({counter[0], counter[1], counter[2], counter[3]}, key);
  std::memcpy(out, x.data(), sizeof(x));
}
"""
_P = ctypes.c_void_p


def mask_of(allowed, vocab) -> np.ndarray:
    """uint32 [ceil(vocab / 32)], the bits beyond the vocabulary set."""
    bits = np.ones(-(-vocab // 32) * 32, np.uint8)
    bits[:vocab] = 0
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


@dataclass(frozen=True)
class Result:
    token: np.ndarray
    logprob: np.ndarray
    rank: np.ndarray
    top_tokens: np.ndarray
    top_logprobs: np.ndarray


class SamplingError(Exception):
    pass


FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


@pytest.fixture(scope="module")
def library(compile_each):
    return compile_each(DRIVER)


@pytest.fixture(scope="module")
def draw(library):
    """draw(logits [R, V], settings of each row, logprobs of each row, threads) -> Result; raises SamplingError."""

    def run(logits, rows, logprobs=None, threads=2, row=None, given=None):
        count, columns = len(rows), max(0, *(int(n) for n in logprobs or [0]), 0)
        lists = {
            "history": ([[*r.prompt, *r.output] for r in rows], np.int32),
            "bias_tokens": ([r.bias for r in rows], np.int32),
            "bias_values": ([r.bias.values() for r in rows], np.float32),
            "bad_words": ([[n for word in r.bad_words for n in (len(word), *word)] for r in rows], np.int32),
        }
        flat = {name: np.array([n for x in every for n in x], dtype) for name, (every, dtype) in lists.items()}
        lengths = {name: np.array([len(x) for x in every], np.int32) for name, (every, _) in lists.items()}
        arrays: dict[str, np.ndarray] = {
            name: np.array([getattr(r, name) for r in rows], np.float32) for name in FLOATS
        }
        arrays |= {name: np.array([getattr(r, name) for r in rows], np.uint64) for name in ("seed", "position")}
        arrays["top_k"] = np.array([r.top_k for r in rows], np.int32)
        for name, array in flat.items():  # where each row's list begins
            starts = array.ctypes.data + 4 * (np.cumsum(lengths[name]) - lengths[name])
            arrays[name] = np.where(lengths[name] > 0, starts, 0).astype(np.uint64)
        arrays["prompt_length"] = np.array([len(r.prompt) for r in rows], np.int32)
        arrays["history_length"] = lengths["history"]
        arrays["bias_length"] = lengths["bias_tokens"]
        arrays["bad_words_length"] = lengths["bad_words"]
        arrays["num_logprobs"] = np.array(logprobs if logprobs else [-1] * count, np.int32)
        masks = [None if r.allowed is None else mask_of(r.allowed, logits.shape[1]) for r in rows]
        arrays["row"] = np.array(range(count) if row is None else row, np.int32)
        arrays["given_token"] = np.array([-1] * count if given is None else given, np.int32)
        arrays["mask"] = np.array([0 if x is None else x.ctypes.data for x in masks], np.uint64)
        arrays["no_repeat_ngram_size"] = np.array([r.no_repeat_ngram_size for r in rows], np.int32)
        result = Result(
            np.full(count, -7, np.int32), np.zeros(count, np.float32), np.zeros(count, np.int32),
            np.zeros((count, columns), np.int32), np.zeros((count, columns), np.float32),
        )  # fmt: skip
        arrays |= {field.name: getattr(result, field.name) for field in fields(result)}
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        args = EsSample(ctypes.sizeof(EsSample), count, columns, **addresses)
        logits = np.ascontiguousarray(logits, np.float32)
        message = ctypes.create_string_buffer(200)
        vocab = ctypes.c_int64(logits.shape[1])
        if library.run(threads, _P(logits.ctypes.data), len(logits), vocab, ctypes.byref(args), message):
            raise SamplingError(message.value.decode())
        return result

    return run


def random_settings(rng, vocab) -> Sampling:
    """Any combination; each feature is on about half of the time."""

    def maybe(value, off):
        return value if rng.random() < 0.5 else off

    return Sampling(
        temperature=float(rng.choice([0, 0.3, 1.0, 2.5])),
        top_k=int(maybe(rng.integers(1, vocab + 5), 0)),
        top_p=float(np.float32(maybe(rng.uniform(0.05, 1), 1))),
        min_p=float(np.float32(maybe(rng.uniform(0.001, 0.5), 0))),
        repetition_penalty=float(np.float32(maybe(rng.uniform(0.5, 2), 1))),
        presence_penalty=float(np.float32(maybe(rng.uniform(-2, 2), 0))),
        frequency_penalty=float(np.float32(maybe(rng.uniform(-1, 1), 0))),
        prompt=tuple(map(int, rng.integers(0, vocab, rng.integers(0, 20)))),
        output=tuple(map(int, rng.integers(0, min(vocab, 9), rng.integers(0, 20)))),
        bias={int(t): float(np.float32(rng.choice([-np.inf, -3.3, 4.2]))) for t in rng.integers(0, vocab, 3)},
        no_repeat_ngram_size=int(maybe(rng.integers(2, 5), 0)),
        bad_words=tuple(
            tuple(map(int, rng.integers(0, min(vocab, 9), rng.integers(1, 4)))) for _ in range(rng.integers(3))
        ),
        allowed=maybe(frozenset(map(int, rng.choice(vocab, max(vocab - 1, vocab // 2), replace=False))), None),
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
        position=int(rng.integers(0, 2**40)),
    )


@pytest.mark.parametrize(("vocab", "rows"), [(7, 60), (33, 300), (1000, 300), (5003, 60)])
def test_same_tokens_as_the_reference_for_any_settings(draw, vocab, rows):
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal((rows, vocab)).astype(np.float32) * 3
    logits[::3] = np.round(logits[::3])  # many ties
    settings = [random_settings(rng, vocab) for _ in range(rows)]
    tokens = draw(logits, settings).token
    expected = [sample(row, s) for row, s in zip(logits, settings, strict=True)]
    np.testing.assert_array_equal(tokens, expected)


LOGITS = {
    "usual": np.array([-3.5, 1.0, 9.0, 9.0, 8.5, -70.0, 0.0], np.float32),
    "a last bit apart": np.nextafter(np.full(7, 20, np.float32), np.array([20, 20, 21, 0, 0, 21, 20], np.float32)),
    "huge": np.array([3e38, -3e38, 3.3e38, 1e30, 0.0, 3.3e38, -1.0], np.float32),
    "all far below zero": np.array([-3.1e38, -3.3e38, -3e38, -3e38, -3.2e38, -3.4e38, -3.3e38], np.float32),
    "tiny": np.array([1e-7, 2e-7, -1e-7, 0.0, 3e-7, 3e-7, 1e-8], np.float32),
}
TEMPERATURES = [2.0**-126, 1e-38, 3e-38, 1e-30, 1e-10, 1e-6, 0.005, 0.01, 0.5, 1e3, 1e10, 1e25, 2.0**100]


def exact_shares(logits, temperature, bias, keep):
    """The distribution over tokens [V], in float64 all the way."""
    scores = logits.astype(np.float64)
    for token, value in bias.items():
        scores[token] += value
    weights = np.where(keep, np.exp((scores - scores.max()) / temperature), 0)
    return weights / weights.sum()


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_ends_of_float32(draw, kind, temperature):
    """Shares of 800 draws beside float64's, with a ban, and with everything that cuts the tail."""
    logits, draws, ban = LOGITS[kind], 800, {2: -np.inf}
    temperature = float(np.float32(temperature))
    for settings in (
        Sampling(bias=ban),
        Sampling(bias=ban, top_k=3),
        Sampling(bias=ban, top_p=0.6),
        Sampling(bias=ban, top_p=2.0**-126),
        Sampling(bias=ban, min_p=0.3),
        Sampling(bias=ban, top_k=4, top_p=0.9, min_p=2.0**-126),
    ):
        rows = [replace(settings, temperature=temperature, seed=5, position=i) for i in range(draws)]
        tokens = draw(np.tile(logits, (draws, 1)), rows).token
        shares = np.bincount(tokens, minlength=7) / draws
        everything = np.isin(np.arange(7), [2], invert=True)
        whole = exact_shares(logits, temperature, ban, everything)
        order = sorted(np.flatnonzero(everything), key=lambda t: (-logits[t], t))[: settings.top_k or None]
        before = np.cumsum([0, *whole[order]])[:-1] / whole[order].sum()
        order = [t for t, mass in zip(order, before, strict=True) if mass < settings.top_p or settings.top_p == 1]
        order = [t for t in order if whole[t] >= settings.min_p * whole.max()]
        expected = exact_shares(logits, temperature, ban, np.isin(np.arange(7), order))
        np.testing.assert_allclose(shares, expected, atol=0.08, err_msg=f"{settings}")
        assert tokens[0] == sample(logits, rows[0])


@pytest.mark.parametrize("temperature", [0, 2.0**-126, 1.0, 2.0**100])
def test_penalties_that_overflow_ban_nothing(draw, temperature):
    logits = np.array([[2e38, -2e38, 1e38]], np.float32)
    settings = Sampling(temperature=temperature, prompt=(0, 1), output=(1,), repetition_penalty=1e-3, top_k=1)
    assert draw(logits, [settings]).token == [0]
    settings = replace(settings, repetition_penalty=1000, prompt=(0, 1, 2), bias={0: -np.inf, 2: -np.inf})
    assert draw(logits, [settings]).token == [1]


def test_a_row_does_not_depend_on_the_others(draw):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((9, 3000)).astype(np.float32) * 3
    settings = [random_settings(rng, 3000) for _ in range(9)]
    together = draw(logits, settings, logprobs=[5] * 9, threads=3)
    for i in range(9):
        alone = draw(logits[i : i + 1], settings[i : i + 1], logprobs=[5], threads=1)
        for field in fields(alone):
            np.testing.assert_array_equal(getattr(alone, field.name)[0], getattr(together, field.name)[i])


@pytest.mark.parametrize(
    "settings",
    [Sampling(), Sampling(temperature=0.7, top_k=9), Sampling(top_p=0.8), Sampling(temperature=1.5, min_p=0.1)],
    ids=str,
)
def test_draws_have_the_distribution(draw, settings):
    """Pearson's chi-square over 20000 positions of one stream, at a level of about one in a million."""
    draws, logits = 20000, np.random.default_rng(3).standard_normal(40).astype(np.float32) * 2
    rows = [replace(settings, seed=99, position=i) for i in range(draws)]
    counts = np.bincount(draw(np.tile(logits, (draws, 1)), rows).token, minlength=40)
    scores = logits / np.float32(settings.temperature)
    keep = kept(scores, settings)
    expected = np.where(keep, np.exp(scores - scores.max()), 0)
    expected *= draws / expected.sum()
    assert counts[~keep].sum() == 0
    enough = keep & (expected >= 5)
    freedom = int(enough.sum()) - 1
    chi_square = np.sum((counts[enough] - expected[enough]) ** 2 / expected[enough])
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom) + 15


def test_greedy_takes_the_lowest_id_among_equals(draw):
    for vocab in (1, 5, 8, 31, 32, 33, 100):
        logits = np.zeros((vocab, vocab), np.float32)
        for i in range(vocab):
            logits[i, i:] = 2
        tokens = draw(logits, [Sampling(temperature=0)] * vocab).token
        np.testing.assert_array_equal(tokens, np.arange(vocab))


def test_top_k_keeps_the_lowest_ids_among_equals(draw):
    rows = [Sampling(top_k=3, seed=1, position=i) for i in range(200)]
    tokens = draw(np.ones((200, 500)), rows).token
    assert set(tokens) == {0, 1, 2}


def test_top_p_keeps_at_least_the_best(draw):
    logits = np.zeros((50, 64), np.float32)
    logits[:, 40] = 1
    assert set(draw(logits, [Sampling(top_p=1e-6, position=i) for i in range(50)]).token) == {40}


def test_banned_tokens_are_never_drawn(draw):
    rows = [Sampling(bias={0: -np.inf, 2: -np.inf}, temperature=t, position=i) for t in (0, 1) for i in range(50)]
    logits = np.tile(np.array([9, 1, 8, 1], np.float32), (100, 1))
    assert set(draw(logits, rows).token) == {1, 3}


@pytest.mark.parametrize(
    ("logits", "settings", "message"),
    [
        ([1.0, np.nan, 2.0], Sampling(temperature=0), "row 1 .*NaN"),
        ([1.0, np.inf, 2.0], Sampling(), "row 1 .*infinity"),
        ([-np.inf] * 3, Sampling(), "row 1 .*banned"),
        ([1.0, 2.0, 3.0], Sampling(bias={0: -np.inf, 1: -np.inf, 2: -np.inf}), "row 1 .*banned"),
        ([1.0, 2.0, 3.0], Sampling(bias={3: 1.0}), "row 1 .*outside the vocabulary"),
        ([1.0, 2.0, 3.0], Sampling(prompt=(5,), presence_penalty=1.0), "row 1 .*outside the vocabulary"),
    ],
)
def test_faults_name_the_row_and_the_reason(draw, logits, settings, message):
    with pytest.raises(SamplingError, match=message):
        draw(np.array([[1.0, 2.0, 3.0], logits]), [Sampling(), settings])


@pytest.mark.parametrize("vocab", [5, 1000, 2049])
def test_logprobs_are_of_the_raw_logits(draw, vocab):
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal((40, vocab)).astype(np.float32) * 4
    logits[::2] = np.round(logits[::2])
    settings = [random_settings(rng, vocab) for _ in range(40)]
    wanted = [int(n) for n in rng.choice([-1, 0, 1, 3, 20], 40)]
    result = draw(logits, settings, logprobs=wanted)
    for i, n in enumerate(wanted):
        token, exact = result.token[i], log_softmax(logits[i])
        if n < 0:
            assert np.isnan(result.logprob[i])
            assert (result.top_tokens[i] == -1).all()
            continue
        assert result.logprob[i] == pytest.approx(exact[token], abs=2e-6, rel=2e-6)
        assert result.rank[i] == rank(logits[i], token)
        best = np.lexsort((np.arange(vocab), -logits[i]))[:n]
        np.testing.assert_array_equal(result.top_tokens[i, : len(best)], best)
        np.testing.assert_allclose(result.top_logprobs[i, : len(best)], exact[best], atol=2e-6, rtol=2e-6)
        assert (result.top_tokens[i, len(best) :] == -1).all()


def test_tokens_that_are_given_and_rows_in_any_order(draw):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, 500)).astype(np.float32)
    row, given = [2, 0, 2, 1], [7, 499, -1, 7]
    result = draw(logits, [Sampling(temperature=0)] * 4, logprobs=[1] * 4, row=row, given=given)
    np.testing.assert_array_equal(result.token, [7, 499, logits[2].argmax(), 7])
    for i in range(4):
        exact = log_softmax(logits[row[i]])
        assert result.logprob[i] == pytest.approx(exact[result.token[i]], abs=2e-6)
        assert result.rank[i] == rank(logits[row[i]], result.token[i])
        assert result.top_tokens[i, 0] == exact.argmax()
    for bad_row in (-1, 3):
        with pytest.raises(SamplingError, match="no such row"):
            draw(logits, [Sampling()], row=[bad_row])
    with pytest.raises(SamplingError, match="outside the vocabulary"):
        draw(logits, [Sampling()], row=[0], given=[500])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that Random123, the authors' library, publishes
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(library, counter, key, expected):
    assert philox4x32(counter, key) == expected
    out = (ctypes.c_uint32 * 4)()
    library.philox((ctypes.c_uint32 * 4)(*counter), ctypes.c_uint64(key), out)
    assert tuple(out) == expected


def test_uniform_is_below_one_and_differs_by_seed_and_position():
    values = {uniform(seed, index) for seed in range(30) for index in range(30)}
    assert len(values) == 900
    assert all(0 <= u < 1 for u in values)
