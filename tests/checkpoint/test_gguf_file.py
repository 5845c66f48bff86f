import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.errors import CheckpointError

WEIGHT = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
Q8 = quantize(WEIGHT, GGMLQuantizationType.Q8_0)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small GGUF file, by llama.cpp's own writer."""
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.rope.freq_base", 0.5)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bb", "ccc"])
    writer.add_array("tokenizer.ggml.token_type", [1] * 2000)
    writer.add_array("llama.attention.sliding_window_pattern", [True, False, True])
    writer.add_string("tokenizer.chat_template", "hé")
    writer.add_tensor("norm", np.arange(5, dtype=np.float32))
    writer.add_tensor("w", Q8, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("half", WEIGHT.astype(np.float16))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return path.read_bytes()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def make(content: bytes) -> Path:
        path = tmp_path / "x.gguf"
        path.write_bytes(content)
        return path

    return make


def test_reads_what_llama_cpp_writes(content: bytes, write) -> None:
    file = read_gguf(write(content))
    assert file.architecture == "llama"
    assert file.metadata["llama.block_count"] == 3
    assert file.metadata["llama.rope.freq_base"] == 0.5
    assert file.metadata["tokenizer.chat_template"] == "hé"
    assert file.metadata["tokenizer.ggml.tokens"] == 3
    assert file.metadata["tokenizer.ggml.token_type"] == 2000
    assert file.metadata["llama.attention.sliding_window_pattern"] == (True, False, True)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"norm": (5,), "w": (6, 64), "half": (6, 64)}
    assert np.array_equal(tensors["norm"].dequantize(), np.arange(5))
    assert np.array_equal(tensors["half"].dequantize(), WEIGHT.astype(np.float16).astype(np.float32))
    whole = dequantize(Q8, GGMLQuantizationType.Q8_0)
    assert np.array_equal(tensors["w"].dequantize(), whole)
    assert np.array_equal(tensors["w"].dequantize(slice(2, 5)), whole[2:5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: b"", "cannot be read"),
        (lambda c: b"PK\3\4" + c[4:], "not a GGUF file"),
        (lambda c: c[:4] + struct.pack("<I", 1) + c[8:], "version 1"),
        (lambda c: c[:4] + struct.pack(">I", 3) + c[8:], "version 50331648"),
        (lambda c: c[:8], "cut short"),
        (lambda c: c[:100], "cut short"),
        (lambda c: c[:-200], "past the file's end"),
        (lambda c: c[:8] + struct.pack("<Q", 1 << 60) + c[16:], "damaged"),
        (lambda c: c[:16] + struct.pack("<Q", 1 << 60) + c[24:], "damaged"),
        (lambda c: c[:24] + struct.pack("<Q", 1 << 60) + c[32:], "damaged"),
    ],
)
def test_damaged_files(content: bytes, write, change: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_gguf(write(change(content)))


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_files(content: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, min(len(changed) - 1, 520)))
        changed[at : at + data.draw(st.integers(1, 8))] = data.draw(st.binary(min_size=1, max_size=8))
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(changed)
    try:
        file = read_gguf(path)
    except CheckpointError:
        return
    for tensor in file.tensors:
        assert tensor.data.nbytes <= len(changed)
        assert tensor.data.tobytes() in bytes(changed)
