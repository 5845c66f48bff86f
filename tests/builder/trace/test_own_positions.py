"""Positions that a model counts itself are those of the position input."""

import numpy as np
import torch
from evaluate_network import evaluate
from transformers import BartConfig, BartForCausalLM

from enginesmith.builder.trace.trace import trace


def test_a_decoder_that_takes_no_positions_packs_sequences():
    config = BartConfig(
        vocab_size=64, d_model=16, decoder_layers=1, encoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=32,
        max_position_embeddings=32, is_decoder=True, is_encoder_decoder=False, init_std=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = BartForCausalLM(config).eval()
    network = trace({**config.to_dict(), "model_type": "bart"}, max_seq_len=32)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    sequences = [list(range(3, 14)), [7], list(range(40, 48))]
    with torch.no_grad():
        expected = np.concatenate([model(torch.tensor([s])).logits[0].numpy() for s in sequences])
    assert np.abs(evaluate(network, weights, sequences) - expected).max() < 1e-4 * np.ptp(expected)
