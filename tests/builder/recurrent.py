"""Builds a tiny random checkpoint of every family with a recurrence, and compares it with Transformers.

python tests/builder/recurrent.py [FAMILY ...]: a line for each, as of mixtures.py, which says what is compared; and the
logits must change when the stored tensors of a recurrence do.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from mixtures import FP32_BAR, SEQUENCES, SIZES, compare, distance, logits_of, stored_tensors
from quick_compiler import quick_options
from step_engine import StepEngine
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.errors import EnginesmithError

MAMBA2 = {
    "mamba_d_state": 12, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_chunk_size": 4,
    "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
MAMBA = {"state_size": 12, "conv_kernel": 4, "expand": 2, "time_step_rank": 5}
DELTA = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 12, "linear_value_head_dim": 20,
}  # fmt: skip
KIMI = {
    "layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"],
    "linear_num_heads": 4, "linear_head_dim": 12, "num_expert_group": 3, "topk_group": 2, "num_experts_per_token": 2,
    "num_key_value_heads": 4, "head_dim": 8,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": DELTA,
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": DELTA,
    "olmo_hybrid": DELTA | {"linear_num_value_heads": 4, "linear_num_key_heads": 4},
    "kimi_linear": KIMI,
    "bailing_hybrid": KIMI | {"num_nextn_predict_layers": 0},
    "mamba": MAMBA,
    "falcon_mamba": MAMBA,
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_d_state": 12, "mamba_dt_rank": 5,
    },
    "zamba": {
        "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "attention_hidden_size": 128,
        "attention_head_dim": 32, "mamba_d_state": 12, "mamba_dt_rank": 5, "num_key_value_heads": 4,
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 64, "num_key_value_heads": 1},
    "rwkv": {"attention_hidden_size": 64, "rescale_every": 1},
    "xlstm": {"qk_dim_factor": 1.0},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {
        "num_heads": 4, "head_dim": 32, "expand": 2, "state_size": 12, "n_groups": 2, "chunk_size": 4,
    },
    "bamba": MAMBA2 | {"attn_layer_indices": [1]},
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 128, "ssm_multipliers": [1.5, 0.9, 1.1, 1.2, 0.8]},
    "granitemoehybrid": MAMBA2 | {"layer_types": ["mamba", "attention"]},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 32,
        "ssm_state_size": 12, "n_groups": 2, "chunk_size": 4,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"], "mamba_d_state": 12, "mamba_headdim": 32, "n_mamba_heads": 4,
        "mamba_ngroups": 2, "mamba_expand": 2, "chunk_size": 4, "num_mem_blocks": 1, "num_key_value_heads": 4,
    },
}  # fmt: skip


def make_model(family: str) -> Any:
    """A tiny random model, in which nothing is zero that a checkpoint stores."""
    kind: Any = CONFIG_MAPPING[family]
    default = kind().to_dict()
    sizes = {key: value for key, value in SIZES.items() if type(default.get(key)) is int}
    config = kind(**(sizes | FAMILIES[family]))
    torch.manual_seed(0)
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for _, tensor in stored_tensors(model):
            tensor.add_(torch.randn_like(tensor) * (0.3 if tensor.ndim == 1 else 0.05))
    return model.eval()


def idle(model: Any) -> list[str]:
    """Tensors of recurrences that do not matter to the logits: their loss would go unseen."""
    expected, found = logits_of(model, SEQUENCES[0]), []
    for name, tensor in stored_tensors(model):
        if any(part in name for part in ("A_log", ".D", "dt_bias", "conv")):
            kept = tensor.detach().clone()
            with torch.no_grad():
                tensor.add_(1.0)
                if distance(logits_of(model, SEQUENCES[0]), expected) < 10 * FP32_BAR:
                    found.append(name)
                tensor.copy_(kept)
    return found


def check(family: str, folder: Path) -> str:
    model = make_model(family)
    model.save_pretrained(folder / "checkpoint")
    sizes = {"max_seq_len": 64, "max_batch_size": 64, "max_num_tokens": 64}
    config = BuildConfig.model_validate({"dtype": "fp32", "check": False, **sizes})
    build(folder / "checkpoint", folder / "engine", config)
    engine = StepEngine(folder / "engine")
    try:
        worst, wrong = compare(engine, model)
        states = len(engine.engine.manifest.state.states)
    finally:
        engine.close()
    wrong += [f"{name} does not matter" for name in idle(model)]
    wrong += ["logits differ"] if worst >= FP32_BAR else []
    return f"{', '.join(wrong) or 'agrees'}; furthest logit {worst:.1e} of the spread, {states} states"


def main(families: list[str]) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ["ENGINESMITH_CXXFLAGS"] = quick_options()
    for family in families:
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = check(family, Path(folder))
            except EnginesmithError as error:
                result = f"refused: {error}"
            except Exception as error:  # of Transformers, on a config that does not hold together
                result = f"no tiny model: {type(error).__name__}: {error}"
        print(f"{family:18} {result}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FAMILIES))
