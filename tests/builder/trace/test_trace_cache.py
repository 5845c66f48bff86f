"""The trace cache: hits without PyTorch, survives damage, keyed by what matters."""

import errno
import json
import os
import subprocess
import sys

import pytest
from tiny_models import FAMILIES

from enginesmith.builder.network import Network
from enginesmith.builder.trace import trace as entry
from enginesmith.builder.trace import trace_cache

LOAD = """
import json, sys
from enginesmith.builder.trace.trace import trace
network = trace(json.loads(sys.argv[1]), max_seq_len=16)
print(network.num_layers, "torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path))


def listing(network):
    return [str(node) for node in network.graph]


def test_a_stored_network_comes_back_whole(traced):
    network = traced("gemma2")
    before = listing(network)
    trace_cache.store("key", network)
    loaded = trace_cache.load("key")
    assert loaded is not None
    assert listing(network) == before, "saving must leave the network as it was"
    assert listing(loaded) == before
    assert [value.name for value in loaded.graph.inputs] == ["input_ids", "position_ids", "logits_rows"]
    assert {n for n, v in loaded.graph.initializers.items() if v.const_value is None} == set(network.parameters)
    for name in ("parameters", "tied", "ignorable_unexpected", "config", "architecture", "base_prefix", "num_layers"):
        assert getattr(loaded, name) == getattr(network, name)


def test_a_hit_needs_neither_torch_nor_transformers(traced):
    config = FAMILIES["llama"]
    trace_cache.store(trace_cache.key(config, 16), traced("llama"))
    done = subprocess.run([sys.executable, "-c", LOAD, json.dumps(config)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False", "False"]


@pytest.mark.parametrize("name", ["network.onnx", "network.onnx.json"])
def test_a_damaged_entry_is_traced_anew(name, tmp_path, traced):
    key = trace_cache.key(FAMILIES["llama"], 16)
    trace_cache.store(key, traced("llama"))
    file = tmp_path / "traces" / key / name
    file.write_bytes(file.read_bytes()[:-40])
    assert trace_cache.load(key) is None
    network = entry.trace(FAMILIES["llama"], max_seq_len=16)
    assert listing(network) == listing(traced("llama"))
    assert trace_cache.load(key) is not None


def test_the_key_holds_what_a_trace_depends_on(monkeypatch):
    config = FAMILIES["llama"]
    key = trace_cache.key(config, 16)
    assert trace_cache.key(dict(reversed(config.items())), 16) == key
    assert trace_cache.key(config, 99) == key
    assert trace_cache.key({**config, "torch_dtype": "bfloat16"}, 16) == key
    assert trace_cache.key({**config, "rope_theta": 7.0}, 16) != key
    assert trace_cache.key(FAMILIES["llama-dynamic"], 16) != trace_cache.key(FAMILIES["llama-dynamic"], 99)
    monkeypatch.setattr(trace_cache, "version", lambda _: "0")
    assert trace_cache.key(config, 16) != key


def test_a_cache_that_is_full_is_no_error(traced, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Network, "save", full)
    trace_cache.store("key", traced("llama"))
    assert trace_cache.load("key") is None
