"""Engine folders and arguments with faults in them: success or one of our errors, soon, in little memory."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import mutations
import pytest

from enginesmith.runtime.llm import LLM
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.tokenizer import load_tokenizer

SHORT = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
MESSAGES = [{"role": "user", "content": "the fox"}]


def resealed(data: bytes) -> bytes:
    """engine.json under a digest that fits, if it is still an object."""
    try:
        manifest = json.loads(data)
        del manifest["manifest_sha256"]
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        return json.dumps(manifest | {"manifest_sha256": digest}).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return data


def test_engine_json(make_toy_engine: Callable[..., Path], tmp_path: Path) -> None:
    engine = make_toy_engine(tmp_path / "e.engine")
    original = (engine / "engine.json").read_bytes()
    for rng in mutations.generators("engine.json"):
        data = mutations.mutated_json(rng, original)
        data = resealed(data) if rng.random() < 0.8 else data
        (engine / "engine.json").write_bytes(data)
        mutations.attempt(lambda: _open_and_close(engine), data)


def _open_and_close(engine: Path) -> None:
    with LLM(engine, threads=1, kv_cache_memory=1 << 20) as llm:
        assert llm.default_sampling_params


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
)
def test_tokenizer_files(byte_level_tokenizer: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(byte_level_tokenizer, tmp_path / "tokenizer"))
    (folder / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|end|>"}, "pad_token": "<|end|>"}')
    original = (folder / name).read_bytes()

    def use() -> None:
        tokenizer = load_tokenizer(folder)
        token_ids = tokenizer.encode("the fox 日本 🙂 <|end|>")
        tokenizer.decode(token_ids)
        for token in token_ids:
            tokenizer.piece(token)
        assert tokenizer.special_ids is not None
        if (template := tokenizer.chat_template) is not None:
            template.render(MESSAGES)

    for rng in mutations.generators(name):
        if name.endswith(".jinja"):
            data = mutations.mutated_text(rng, original.decode()).encode("utf-8", "surrogatepass")
        else:
            data = mutations.mutated_json(rng, original)
        (folder / name).write_bytes(data)
        mutations.attempt(use, data)


def test_sampling_params(llm: LLM) -> None:
    names = [field.name for field in fields(SamplingParams)]
    for rng in mutations.generators("sampling"):
        changes = {name: mutations.odd_value(rng) for name in rng.sample(names, rng.choice((1, 1, 2, 3)))}
        mutations.attempt(lambda: llm.generate([[5]], SHORT.replace(**changes)), changes)  # noqa: B023
    assert llm.engine.kv.usage == 0


def test_api_arguments(llm: LLM) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda value: llm.generate(value, SHORT),
        lambda value: llm.generate([value], SHORT),
        lambda value: llm.generate([[5, value]], SHORT),
        lambda value: llm.generate("a", value),
        lambda value: llm.generate(["a"], [value]),
        lambda value: llm.generate(["a"], SHORT, priority=value),
        lambda value: llm.generate(["a", "b"], SHORT, priority=[0, value]),
        lambda value: list(llm.stream(value, SHORT)),
        lambda value: list(llm.stream("a", value)),
        lambda value: list(llm.stream("a", SHORT, priority=value)),
        lambda value: llm.chat(value, SHORT),
        lambda value: llm.chat([value], SHORT),
        lambda value: llm.chat([{"role": "user", "content": value}], SHORT),
        lambda value: llm.chat([{"role": value, "content": "a"}], SHORT),
        lambda value: llm.chat([{"role": "user", "content": "a", "extra": value}], SHORT),
        lambda value: llm.render_chat(MESSAGES, tools=value),
        lambda value: llm.render_chat(MESSAGES, documents=[value]),
        lambda value: llm.render_chat(MESSAGES, add_generation_prompt=value),
        lambda value: llm.compute_logits(value),
        lambda value: llm.compute_logits([5, value]),
        lambda value: llm.compute_logits([5, 6], value),
        lambda value: llm.compute_logits([5, 6], [1, value]),
    ]
    for rng in mutations.generators("api"):
        index, value = rng.randrange(len(calls)), mutations.odd_value(rng)
        mutations.attempt(lambda: calls[index](value), (index, value))  # noqa: B023
    assert llm.engine.kv.usage == 0
    assert not llm.engine.has_unfinished


def test_options_of_an_engine(toy_engine: Path) -> None:
    options = ["engine", "threads", "kv_cache_memory", "capacity_policy"]
    for rng in mutations.generators("options"):
        given: dict[str, Any] = {"engine": toy_engine, "threads": 1, "kv_cache_memory": 1 << 20}
        given[rng.choice(options)] = mutations.odd_value(rng)
        mutations.attempt(lambda: LLM(**given).close(), given)  # noqa: B023


def test_a_failure_is_one() -> None:
    """The frame itself: what is no success and no error of ours fails the test."""
    with pytest.raises(ZeroDivisionError):
        mutations.attempt(lambda: 1 // 0, "division")
    with pytest.raises(MemoryError):
        mutations.attempt(lambda: bytearray(2 << 30), "2 GB")
    assert mutations.mutated_bytes(random.Random(1), b"abc" * 100) != b"abc" * 100
