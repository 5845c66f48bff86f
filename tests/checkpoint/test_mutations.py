"""Checkpoints with faults in their files: an open checkpoint, or CheckpointError."""

import shutil
from collections.abc import Callable
from pathlib import Path

import mutations
import numpy as np
import pytest
from gguf import GGUFWriter

from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.gguf_file import read_gguf

FILES = ["config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"]


@pytest.mark.parametrize("name", FILES)
def test_checkpoint_files(tiny_checkpoint: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint("llama"), tmp_path / "in"))
    file = folder / name
    if name.endswith("index.json"):
        names = list(open_checkpoint(folder).tensors)
        file.write_text(
            f'{{"metadata": {{}}, "weight_map": {{{", ".join(f"{n!r}: {FILES[2]!r}" for n in names)}}}}}'.replace(
                "'", '"'
            )
        )
    if not file.exists():
        file.write_text('{"eos_token_id": [1, 2], "temperature": 0.5, "top_k": 40, "do_sample": true}')
    original = file.read_bytes()

    def use() -> None:
        checkpoint = open_checkpoint(folder)
        assert checkpoint.eos_token_ids is not None
        for tensor in list(checkpoint.tensors)[:3]:
            checkpoint.read(tensor).sum()

    use()
    for rng in mutations.generators(name):
        if name.endswith(".json"):
            data = mutations.mutated_json(rng, original)
        else:  # its header, most of the time: data are data
            end = 8 + int.from_bytes(original[:8], "little")
            data = mutations.mutated_bytes(rng, original[:end]) + original[end:]
        file.write_bytes(data)
        mutations.attempt(use, data[:4000])


def test_gguf_files(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bb", "ccc"])
    writer.add_array("tokenizer.ggml.token_type", [1] * 300)
    writer.add_string("tokenizer.chat_template", "hé")
    writer.add_tensor("norm", np.arange(5, dtype=np.float32))
    writer.add_tensor("half", np.ones((6, 64), np.float16))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    original = path.read_bytes()

    def use() -> None:
        for tensor in read_gguf(path).tensors:
            tensor.dequantize().sum()

    use()
    for rng in mutations.generators("gguf"):
        data = mutations.mutated_bytes(rng, original)
        path.write_bytes(data)
        mutations.attempt(use, data[:4000])
