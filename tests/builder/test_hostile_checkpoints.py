"""Checkpoint files mutated at random, from a fixed seed: each is opened and made a model of, or is an error of ours."""

import json
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginesmith.builder.trace.skeleton import make_skeleton
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.errors import EnginesmithError

MUTATIONS = 150
MAX_SECONDS, MAX_KILOBYTES = 10, 1_000_000
KEYS = [
    "num_labels", "id2label", "label2id", "num_hidden_layers", "n_layer", "vocab_size", "hidden_size", "head_dim",
    "num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "rope_scaling",
    "rope_parameters", "rope_theta", "layer_types", "hidden_act", "quantization_config", "text_config", "model_type",
    "_attn_implementation", "auto_map", "eos_token_id", "architectures", "attribute_map", "per_layer_config", "dtype",
    "initializer_range",
    "pad_token_id", "get_text_config", "to_dict", "sub_configs", "num_local_experts", "rms_norm_eps", "is_decoder",
]  # fmt: skip
DEEP = '{"a":' * 900 + "0" + "}" * 900
RAW = [
    "0", "-1", "1e999", "NaN", "10000000", "1000000000000", "1" + "0" * 30, "9" * 5000, "null", "true", '""', '"x"',
    '"org/kernels"', '"flash_attention_2"', "[]", "{}", '[1, "a"]', '{"0": 1}', '{"rope_type": "yarn"}', DEEP,
    '"\\ud800"', '"\\u0000"', '{"__float__": "Infinity"}', '{"quant_method": "evil"}', '{"quant_method": "gptq"}',
    '"gpt2"', '"mamba2"', '"vit"',
]  # fmt: skip
LONGEST_MESSAGE = 6000


def attempt(folder: Path) -> bool:
    """Whether the checkpoint can be made a model of. Raises whatever is no error of ours."""
    start, message = time.monotonic(), ""
    try:
        checkpoint = open_checkpoint(folder)
        layout_of(checkpoint)
        _ = checkpoint.eos_token_ids
        make_skeleton(checkpoint.config, 16)
    except EnginesmithError as error:
        message = str(error)
    assert len(message) < LONGEST_MESSAGE
    assert time.monotonic() - start < MAX_SECONDS
    return not message


@pytest.fixture
def folder(tiny_checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint("llama"), tmp_path / "model"))


def with_raw(config: dict[str, Any], changes: dict[str, str]) -> str:
    """JSON of `config` with some values given as JSON texts."""
    kept = {key: json.dumps(value) for key, value in config.items()} | changes
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in kept.items()) + "}"


def test_config_json(folder: Path) -> None:
    path, draw = folder / "config.json", random.Random(0)
    config = json.loads(path.read_text())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = 0
    for _ in range(MUTATIONS):
        changes = {draw.choice(KEYS): draw.choice(RAW) for _ in range(draw.randint(1, 2))}
        path.write_text(with_raw(config, changes))
        made += attempt(folder)
    assert 0 < made < MUTATIONS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_KILOBYTES


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_bytes(folder: Path, name: str) -> None:
    path, draw = folder / name, random.Random(1)
    whole = path.read_bytes()
    region = min(len(whole), 4000)
    for _ in range(MUTATIONS // 3):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(region)] = draw.randrange(256)
        path.write_bytes(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])]))
        attempt(folder)


def test_index_json(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    path, draw = folder / "model.safetensors.index.json", random.Random(2)
    names = ['"one.safetensors"', '"../one.safetensors"', '"none.safetensors"', "null", "7", '"\\ud800"', DEEP, "{}"]
    for _ in range(MUTATIONS // 3):
        entries = ", ".join(f'"t{draw.randrange(5)}": {draw.choice(names)}' for _ in range(draw.randint(0, 3)))
        path.write_text(draw.choice(['{"weight_map": {%s}}', '{"weight_map": [%s]}', "{%s"]) % entries)
        attempt(folder)
