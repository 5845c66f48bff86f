"""Whoever shares the batch: random traffic, each request as in its solitary run; afterwards every block is free."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.kv_cache.sizing import blocks_for
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.loading import LoadedEngine, load
from enginesmith.runtime.manifest import KvCacheSpec, Limits
from enginesmith.runtime.outputs import CompletionOutput
from enginesmith.runtime.request import Request
from enginesmith.runtime.runtime_config import RuntimeConfig
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.structured_output.params import StructuredOutputsParams
from enginesmith.units import Bytes

REQUESTS = 200


@dataclass
class Traffic:
    """One request to come: when, and after how many of its tokens it is given up (None: never)."""

    arrival: int
    prompt: list[int]
    params: SamplingParams
    priority: int
    abort_after: int | None


FORMS = [  # without spaces: the tokenizer has more tokens than some of the models
    StructuredOutputsParams(regex="(the|quick)*"),
    StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}, "minItems": 1}),
]


def random_params(rng: random.Random, vocab_size: int, room: int) -> SamplingParams:
    if rng.random() < 0.2:
        return SamplingParams(
            max_tokens=rng.randint(1, room),
            temperature=rng.choice([0, 1.5]),
            repetition_penalty=rng.choice([1, 1.3]),
            seed=rng.getrandbits(64),
            structured_outputs=rng.choice(FORMS),
        )
    max_tokens = rng.choice([rng.randint(1, room), room])
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=rng.choice([0, 0, rng.randint(0, max_tokens)]),
        temperature=rng.choice([0, 0, 0.7, 1.0, 1.5]),
        top_k=rng.choice([0, -1, 1, 20]),
        top_p=rng.choice([1, 0.9, 0.5]),
        min_p=rng.choice([0, 0, 0.1]),
        repetition_penalty=rng.choice([1, 1, 1.3]),
        presence_penalty=rng.choice([0, 0, 0.5]),
        frequency_penalty=rng.choice([0, 0, -0.3]),
        logit_bias=rng.choice([None, {rng.randrange(vocab_size): rng.uniform(-100, 10), 3: float("-inf")}]),
        seed=rng.getrandbits(64),
        stop=rng.choice([(), (), (), ("the",), ("th", "xyz")]),
        stop_token_ids=rng.choice([(), (rng.randrange(vocab_size),)]),
        ignore_eos=rng.random() < 0.8,
        logprobs=rng.choice([None, None, 0, 3]),
        prompt_logprobs=rng.choice([None, None, None, 1]),
        no_repeat_ngram_size=rng.choice([0, 0, 3]),
        bad_words=rng.choice([(), (), ("the", "xy")]),
    )


def random_traffic(rng: random.Random, llm: LLM, requests: int, longest: int) -> list[Traffic]:
    vocab_size, arrival, traffic = llm.manifest.model.vocab_size, 0, []
    for _ in range(requests):
        arrival += rng.choice([0, 0, 0, 1, 2, 5])
        prompt = [rng.randrange(vocab_size) for _ in range(rng.randint(1, longest // 3))]
        params = random_params(rng, vocab_size, longest - len(prompt))
        abort_after = rng.randint(0, params.max_tokens or 1) if rng.random() < 0.15 else None
        traffic.append(Traffic(arrival, prompt, params, rng.choice([0, 0, 0, -1, 2]), abort_after))
    return traffic


def serve(loaded: LoadedEngine, traffic: list[Traffic]) -> list[Request]:
    """Run all of it as it arrives, a step at a time."""
    engine, requests = loaded.engine, list[Request]()
    coming, now = list(traffic), 0
    while coming or engine.has_unfinished:
        while coming and coming[0].arrival <= now:
            item = coming.pop(0)
            stream = loaded.admission.admit(item.prompt, item.params, priority=item.priority)
            requests += stream.requests
            engine.add(stream.requests)
        for request, item in zip(requests, traffic, strict=False):
            if item.abort_after is not None and request.num_output >= item.abort_after:
                engine.abort([request])
        engine.step()
        now += 1
        assert now < 100_000, "requests are starving"
    return requests


def sequence_bytes(kv: KvCacheSpec, limits: Limits) -> int:
    """Bytes that the longest sequence may hold."""
    return sum(
        blocks_for(group, kv.block_size, limits.max_seq_len, limits.max_num_tokens) * group.bytes_per_block
        for group in kv.groups
    )


def assert_begins_with(whole: CompletionOutput, part: CompletionOutput) -> None:
    count = len(part.token_ids)
    assert whole.token_ids[:count] == part.token_ids
    assert whole.text.startswith(part.text)
    assert (whole.logprobs or [])[:count] == (part.logprobs or [])


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "max_utilization"])
def test_each_request_is_served_as_if_alone(toy_engine: Path, policy: str):
    check_traffic(toy_engine, policy, REQUESTS, longest=96, blocks_for_sequences=1.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision", [{"dtype": "fp32"}, {"dtype": "bf16"}, {"weights": "int8"}, {"weights": "int4"}], ids=str
)
def test_on_a_real_engine(
    tiny_checkpoint: Callable[[str], Path], byte_level_tokenizer: Path, tmp_path: Path, precision: dict[str, str]
):
    """Kernels, sampler and cache of a real engine, with full and sliding-window layers."""
    from enginesmith.builder.build import build
    from enginesmith.builder.build_options import BuildConfig

    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint("gemma2"), checkpoint)
    shutil.copytree(byte_level_tokenizer, checkpoint, dirs_exist_ok=True)
    limits = {"max_batch_size": 6, "max_num_tokens": 16, "max_seq_len": 96, "kv_block_size": 16}
    config = BuildConfig.model_validate({**precision, **limits, "check": False})
    build(checkpoint, tmp_path / "engine", config)
    check_traffic(tmp_path / "engine", "max_utilization", REQUESTS // 2, longest=96, blocks_for_sequences=1.8)


def check_traffic(engine: Path, policy: str, requests: int, longest: int, blocks_for_sequences: float) -> None:
    """Serve `requests` random requests of at most `longest` tokens with room for a few of the longest sequences."""
    with LLM(engine, threads=1) as alone:
        limits, kv = alone.manifest.limits, alone.manifest.kv_cache
        traffic = random_traffic(random.Random(0), alone, requests, min(longest, limits.max_seq_len))
        solitary = [alone.generate(item.prompt, item.params)[0] for item in traffic]
    memory = int(sequence_bytes(kv, limits) * blocks_for_sequences)
    config = RuntimeConfig(threads=1, kv_cache_memory=Bytes(memory), capacity_policy=CapacityPolicy(policy))
    loaded = load(engine, config)
    with closing(loaded.engine.executor):
        served = serve(loaded, traffic)
        for item, request, expected in zip(traffic, served, solitary, strict=True):
            assert request.finished
            assert request.error is None
            if request.finish_reason == "abort":
                assert item.abort_after is not None
                assert_begins_with(expected.outputs[0], request.output())
            else:
                assert request.output() == expected.outputs[0]
                assert request.prompt_logprobs == expected.prompt_logprobs
        assert loaded.engine.kv.usage == 0
        assert all(group.promised == 0 for group in loaded.engine.kv._groups)
        preemptions = loaded.engine.scheduler.num_preemptions
        assert preemptions == 0 if policy == "guaranteed_no_evict" else preemptions > 10
        assert sum(request.finish_reason == "abort" for request in served) > requests // 20
