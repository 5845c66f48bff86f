"""A GGUF file built whole: the logits of the model it was written from, and chats that stop where the file says."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import VOCAB_SIZE, write_gguf
from transformers import LlamaConfig, LlamaForCausalLM

from enginesmith import LLM, SamplingParams
from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cpu.options import CpuOptions

pytestmark = pytest.mark.slow

EOS, END_OF_TURN = 1, 263
TOKENS = [4 + 37 * i % 256 for i in range(40)]
METADATA = {
    "rope.dimension_count": 8,
    "rope.scaling.factor": 4.0,  # linear, where no type is stated
    "tokenizer.ggml.eot_token_id": END_OF_TURN,
    "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
}


def test_a_model_in_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters=rope,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    file = write_gguf(tmp_path / "model-00001-of-00002.gguf", model, "llama", METADATA, parts=2)
    build(file, tmp_path / "engine", BuildConfig(dtype="fp32", target=CpuOptions(isa="avx2")))
    with torch.no_grad():
        expected = model(torch.tensor([TOKENS])).logits[0].numpy()
    with LLM(tmp_path / "engine") as llm:
        np.testing.assert_allclose(llm.compute_logits(TOKENS), expected, rtol=0, atol=1e-4 * np.ptp(expected))
        ways = [SamplingParams(temperature=2.0, max_tokens=50, seed=seed) for seed in range(100)]
        chats = llm.chat([[{"role": "user", "content": "ab"}]] * len(ways), ways)
    answers = [chat.outputs[0] for chat in chats]
    stopped = [answer.token_ids[-1] for answer in answers if answer.finish_reason == "stop"]
    assert set(stopped) == {EOS, END_OF_TURN}
    assert not any({EOS, END_OF_TURN} & set(answer.token_ids[:-1]) for answer in answers)
