"""The paged attention kernel: right against float64, and the same bits however the work is cut."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from enginesmith.plugins.attention.reference import attention, cached

SMOL = ("Fp32", 9, 3, 64, 64, 32)
SHAPES = [
    SMOL,
    ("Bf16", 9, 3, 64, 64, 32),
    ("Fp32", 4, 4, 16, 16, 16),
    ("Fp32", 5, 1, 17, 5, 48),
    ("Bf16", 7, 1, 33, 20, 64),
    ("Bf16", 4, 2, 128, 96, 16),
    ("PerToken<Int8>", 9, 3, 64, 64, 32),
    ("PerToken<Int8>", 5, 1, 17, 5, 48),
    ("PerToken<Fp8>", 4, 2, 64, 96, 16),
    ("PerToken<Fp8>", 7, 1, 33, 20, 64),
    ("PerHead<Int8>", 4, 2, 33, 20, 128),
    ("PerHead<Fp8>", 9, 3, 64, 64, 32),
]
QUANTIZED = SHAPES[6:]
OPTIONS = {
    "plain": {},
    "window": {"window": 37},
    "softcap": {"softcap": 2.0, "scale": 1.0},
    "sinks": {"sinks": True},
    "chunk": {"chunk": 41},
    "slopes": {"slopes": True},
    "all": {"window": 100, "softcap": 5.0, "sinks": True, "slopes": True, "chunk": 230},
}


def options_for(shape: tuple, name: str) -> dict:
    options = dict(OPTIONS[name])
    if options.pop("sinks", False):
        options["sinks"] = np.linspace(-2, 3, shape[1]).astype(np.float32)
    if options.pop("slopes", False):
        options["slopes"] = np.geomspace(0.5, 2e-3, shape[1]).astype(np.float32)
    return options


def expected(runner, sequence) -> np.ndarray:
    """The float64 reference over keys and values as the cache holds them."""
    q, k, v = sequence.q.astype(np.float64), held(runner, sequence.k, 0), held(runner, sequence.v, 1)
    options = runner.options
    sinks, slopes = (None if x is None else x.astype(np.float64) for x in (options.sinks, options.slopes))
    more = {name: getattr(options, name) for name in ("scale", "window", "softcap", "chunk")}
    return attention(q, k, v, sinks, slopes, **more)


def held(runner, x: np.ndarray, which: int) -> np.ndarray:
    """Keys (0) or values (1), float64, as the cache holds them."""
    if runner.shape.kind is not None:
        elements, scales = cached(x, runner.shape.kind, runner.head_scales[which])
        return elements.astype(np.float64) * scales[..., None]
    return x.astype(np.float32 if runner.shape.element == "Fp32" else ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill_then_decode_matches_the_reference(make_runner, make_sequence, shape, name):
    runner = make_runner(shape, **options_for(shape, name))
    sequence = make_sequence(runner, 301)
    runner.step([(sequence, 290)])
    for _ in range(11):
        runner.step([(sequence, 1)])
    np.testing.assert_allclose(sequence.output, expected(runner, sequence), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [SMOL, SHAPES[3], QUANTIZED[2]], ids=str)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 513, 900])
def test_every_boundary_of_tiles_and_splits(make_runner, make_sequence, shape, length):
    runner = make_runner(shape)
    sequence = make_sequence(runner, length)
    runner.step([(sequence, length)])
    np.testing.assert_allclose(sequence.output, expected(runner, sequence), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["plain", "all"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits_however_the_prompt_is_chunked(make_runner, make_sequence, shape, name):
    length, whole = 530, None
    for threads, sizes in [(1, [530]), (3, [530]), (2, [1]), (1, [3]), (3, [7]), (2, [64]), (1, [1, 255, 19])]:
        runner = make_runner(shape, **options_for(shape, name))
        sequence, chunks = make_sequence(runner, length), itertools.cycle(sizes)
        while sequence.done < length:
            runner.step([(sequence, min(next(chunks), length - sequence.done))], threads)
        whole = sequence.output if whole is None else whole
        np.testing.assert_array_equal(sequence.output, whole, err_msg=f"chunks of {sizes}, {threads} threads")


@pytest.mark.parametrize("name", ["plain", "all"])
@pytest.mark.parametrize("shape", [SMOL, SHAPES[1], SHAPES[3], *QUANTIZED[1:]], ids=str)
def test_same_bits_whoever_shares_the_step(make_runner, make_sequence, shape, name):
    lengths, rng = [530, 1, 40, 333, 270], np.random.default_rng(1)
    options = options_for(shape, name)
    alone = []
    for seed, length in enumerate(lengths):
        runner = make_runner(shape, **options)
        alone.append(make_sequence(runner, length, seed))
        runner.step([(alone[-1], length)], threads=1)
    for threads in (1, 2, 3):
        runner = make_runner(shape, **options)
        together = [make_sequence(runner, length, seed) for seed, length in enumerate(lengths)]
        while waiting := [s for s in together if s.done < len(s.q)]:
            present = [s for s in waiting if rng.random() < 0.8] or waiting
            sizes = rng.choice([1, 1, 5, 100], len(present))
            runner.step([(s, min(int(n), len(s.q) - s.done)) for s, n in zip(present, sizes, strict=True)], threads)
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one.output, other.output)


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[3], *QUANTIZED], ids=str)
def test_sixteen_lanes(make_runner, make_sequence, shape):
    options = options_for(shape, "all")
    runner = make_runner(shape, wide=True, **options)
    whole = make_sequence(runner, 530)
    runner.step([(whole, 530)])
    np.testing.assert_allclose(whole.output, expected(runner, whole), rtol=0, atol=1e-5)
    other = make_runner(shape, wide=True, **options)
    chunked, sizes = make_sequence(other, 530), itertools.cycle([1, 7, 40])
    while chunked.done < 530:
        other.step([(chunked, min(next(sizes), 530 - chunked.done))], threads=3)
    np.testing.assert_array_equal(chunked.output, whole.output)


def test_long_decode_is_cut_into_rounds_without_changing_a_bit(make_runner, make_sequence):
    """More splits than the slots of a round (16 a thread), alone and beside a prompt."""
    shape, length = ("Fp32", 4, 4, 16, 16, 16), 1400
    runner = make_runner(shape)
    sequence = make_sequence(runner, length)
    runner.step([(sequence, length)])
    assert len(sequence.blocks) < 96
    for threads in (1, 2, 3):
        other = make_runner(shape)
        cut, prompt = make_sequence(other, length), make_sequence(other, 20, seed=9)
        other.step([(cut, length - 2)], threads)
        other.step([(cut, 1)], threads)
        other.step([(prompt, 20), (cut, 1)], threads)
        np.testing.assert_array_equal(cut.output, sequence.output)
        np.testing.assert_allclose(prompt.output, expected(other, prompt), rtol=0, atol=1e-5)


def test_a_nan_query_spoils_its_own_row_alone(make_runner, make_sequence):
    runner = make_runner(SMOL)
    sequence = make_sequence(runner, 100)
    clean = make_sequence(runner, 100)
    runner.step([(clean, 100)])
    sequence.q[50, 4, 3] = np.nan
    runner.step([(sequence, 100)])
    assert np.isnan(sequence.output[50, 4]).all()
    sequence.outputs[0][50, 4] = clean.output[50, 4]
    np.testing.assert_array_equal(sequence.output, clean.output)
