"""Builds that must fail: each says what was wrong and what to do, and leaves nothing behind."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.check import BARS, INT4_BARS, compare
from enginesmith.builder.lowering import weights_file
from enginesmith.builder.targets.cpu import plan as cpu_plan
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.errors import BuildError, CheckpointError, ToolchainError, UnsupportedModelError

CONFIG = BuildConfig(
    dtype="fp32", max_num_tokens=16, max_batch_size=4, kv_block_size=16, target=CpuOptions(isa="avx2"), check=False
)


@pytest.fixture
def llama(tiny_checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_checkpoint("llama"), tmp_path / "checkpoint"))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "engine"


def nothing_beside(output: Path) -> bool:
    return not list(output.parent.iterdir())


def test_a_weight_with_nan_is_named(llama: Path, output: Path):
    name = "model.layers.1.mlp.down_proj.weight"
    change_weight(llama, name, lambda weight: weight.__setitem__((3, 5), np.nan))
    with pytest.raises(BuildError, match=f"{name} holds 1 NaN"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_infinity_in_a_norm_is_named(llama: Path, output: Path):
    change_weight(llama, "model.norm.weight", lambda weight: weight.__setitem__(0, np.inf))
    with pytest.raises(BuildError, match=r"model\.norm\.weight"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_more_tokens_than_the_model_was_made_for(llama: Path, output: Path):
    with pytest.raises(BuildError, match=r"max_seq_len 129 .* 128 tokens"):
        build(llama, output, CONFIG.model_copy(update={"max_seq_len": 129}))
    assert nothing_beside(output)


def test_a_folder_that_is_no_engine_is_not_replaced(llama: Path, output: Path):
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(BuildError, match="is not an engine"):
        build(llama, output, CONFIG)
    assert (output / "thesis.txt").exists()


def test_a_refusing_compiler_leaves_nothing(llama: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "c++"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fake 1 && exit 0\necho "error: no thanks"; exit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(ToolchainError, match="no thanks"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_an_interrupt_leaves_the_old_engine(llama: Path, output: Path, monkeypatch: pytest.MonkeyPatch):
    output.mkdir()
    (output / "engine.json").write_text("{}")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cpu_plan, "write_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(llama, output, CONFIG)
    assert [path.name for path in output.parent.iterdir()] == ["engine"]
    assert (output / "engine.json").read_text() == "{}"


def test_a_missing_tensor_is_reported_before_anything_is_made(llama: Path, output: Path):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"layers\.2"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_the_check_sees_a_wrong_engine():
    random = np.random.default_rng(0)
    right = random.normal(0, 3, (20, 100))
    for distance_bar, kl_bar in (*BARS.values(), *(bar for _, bar in INT4_BARS)):
        assert compare(right, right, distance_bar, kl_bar).passed
        assert not compare(random.permutation(right), right, distance_bar, kl_bar).passed
        assert not compare(np.where(right > 8, np.nan, right), right, distance_bar, kl_bar).passed


def test_a_bar_of_ones_own_and_how_far_past_it(llama: Path, output: Path):
    config = CONFIG.model_copy(update={"check": True, "check_kl": 1e-30})
    with pytest.raises(BuildError, match=r"KL divergence \S+ nats, \S+ times the bar \(1e-30\).*--check-kl"):
        build(llama, output, config)
    assert nothing_beside(output)


def change_weight(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name].copy()
    change(tensors[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("content", ["", "garbage", "{}", '{"model": {"vocab": {"a": "b"}}}'])
def test_a_damaged_tokenizer_is_refused(llama: Path, output: Path, content: str):
    (llama / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"checkpoint.tokenizer\.json"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_an_output_below_a_file(llama: Path, output: Path):
    output.parent.joinpath("file").touch()
    with pytest.raises(BuildError, match="not a folder that can be written"):
        build(llama, output.parent / "file" / "engine", CONFIG)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rope_theta", 0, "rotary frequencies"),
        ("rope_scaling", {"rope_type": "linear", "factor": 0}, "rotary frequencies"),
        ("rope_scaling", {"rope_type": "weird", "factor": 2.0}, "names 'weird', which Transformers does not know"),
        ("hidden_act", "nonsense", "names 'nonsense', which Transformers does not know"),
    ],
)
def test_a_config_that_makes_no_sense(llama: Path, output: Path, key: str, value: object, message: str):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UnsupportedModelError, match=message):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_a_disk_that_fills_up_names_the_output(llama: Path, output: Path, monkeypatch: pytest.MonkeyPatch):
    copy = shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if target.is_relative_to(output.parent):  # and not the cache's
            raise OSError(errno.ENOSPC, "No space left on device", str(source))
        copy(source, target)

    monkeypatch.setattr(cpu_plan.shutil, "copyfile", full)
    with pytest.raises(BuildError, match=f"{output} could not be written: No space left"):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_a_disk_without_room_for_the_weights(llama: Path, output: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights_file.os, "posix_fallocate", full)
    told = (
        rf"^{output} could not be written: No space left on device: its weights take \d+\.\d kB; free some space there"
    )
    with pytest.raises(BuildError, match=told):
        build(llama, output, CONFIG)
    assert nothing_beside(output)


def test_a_compiler_named_with_an_open_quotation(llama: Path, output: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "'")
    with pytest.raises(ToolchainError, match="does not run"):
        build(llama, output, CONFIG)
