"""Tiny random checkpoints of many families: the same bytes on every machine, made in a fraction of a second."""

import hashlib
import json
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}
_LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0 + 0.01 * i for i in range(8)],
    "long_factor": [1.5 + 0.5 * i for i in range(8)],
}


def _family(model_type: str, architecture: str, **changes: Any) -> dict[str, Any]:
    config = {"model_type": model_type, "architectures": [architecture], **_COMMON, **changes}
    return {key: value for key, value in config.items() if value is not ...}


def _llama(**changes: Any) -> dict[str, Any]:
    return _family("llama", "LlamaForCausalLM", **{"head_dim": 16, "tie_word_embeddings": False, **changes})


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _llama(intermediate_size=90),
    "llama-llama3": _llama(rope_scaling=_LLAMA3, rope_theta=500.0),
    "llama-yarn": _llama(rope_scaling=_YARN, rope_theta=500.0),
    "llama-linear": _llama(rope_scaling={"type": "linear", "factor": 2.0}, tie_word_embeddings=True),
    "llama-dynamic": _llama(rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=16),
    "llama-bias": _llama(attention_bias=True, mlp_bias=True),
    "mistral": _family("mistral", "MistralForCausalLM", sliding_window=4, head_dim=16),
    "qwen2": _family("qwen2", "Qwen2ForCausalLM", tie_word_embeddings=True),
    "qwen3": _family("qwen3", "Qwen3ForCausalLM", head_dim=16),
    "gemma2": _family(
        "gemma2", "Gemma2ForCausalLM", head_dim=16, num_hidden_layers=4, sliding_window=4, query_pre_attn_scalar=16,
        attn_logit_softcapping=5.0, final_logit_softcapping=3.0, hidden_activation="gelu_pytorch_tanh",
    ),
    "gemma3_text": _family(
        "gemma3_text", "Gemma3ForCausalLM", head_dim=16, num_hidden_layers=4, sliding_window=4,
        sliding_window_pattern=2, query_pre_attn_scalar=16, rope_theta=1000.0, rope_local_base_freq=100.0,
    ),
    "phi3": _family("phi3", "Phi3ForCausalLM", intermediate_size=90, sliding_window=5),
    "phi3-longrope": _family(
        "phi3", "Phi3ForCausalLM", rope_scaling=_LONGROPE, original_max_position_embeddings=32,
    ),
    "gpt2": _family(
        "gpt2", "GPT2LMHeadModel", n_embd=64, n_head=4, n_layer=2, n_positions=128, hidden_size=..., n_inner=96,
        num_attention_heads=..., num_hidden_layers=..., max_position_embeddings=..., num_key_value_heads=...,
        intermediate_size=...,
    ),
    "gpt_neox": _family("gpt_neox", "GPTNeoXForCausalLM", rotary_pct=0.5, num_key_value_heads=...),
    "gpt_neo": _family(
        "gpt_neo", "GPTNeoForCausalLM", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=4, num_attention_heads=..., num_hidden_layers=..., num_key_value_heads=...,
    ),
    "bloom": _family(
        "bloom", "BloomForCausalLM", n_head=4, n_layer=2, num_attention_heads=..., num_hidden_layers=...,
        num_key_value_heads=..., intermediate_size=..., max_position_embeddings=...,
    ),
    "olmo2": _family("olmo2", "Olmo2ForCausalLM"),
    "granite": _family(
        "granite", "GraniteForCausalLM", embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.7,
        attention_multiplier=0.3,
    ),
    "cohere": _family("cohere", "CohereForCausalLM", logit_scale=0.5, use_qk_norm=False),
    "cohere-qk_norm": _family("cohere", "CohereForCausalLM", logit_scale=0.5, use_qk_norm=True),
    "stablelm": _family("stablelm", "StableLmForCausalLM", partial_rotary_factor=0.25, use_qkv_bias=True),
    "starcoder2": _family("starcoder2", "Starcoder2ForCausalLM", sliding_window=6),
    "opt": _family(
        "opt", "OPTForCausalLM", ffn_dim=96, intermediate_size=..., word_embed_proj_dim=64, num_key_value_heads=...,
        init_std=0.2,
    ),
    "nemotron": _family("nemotron", "NemotronForCausalLM", head_dim=16, partial_rotary_factor=0.5),
    "smollm3": _family("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=4),
    "glm4": _family("glm4", "Glm4ForCausalLM", head_dim=16, partial_rotary_factor=0.5, attention_bias=True),
}  # fmt: skip


MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": _family("mixtral", "MixtralForCausalLM", num_local_experts=5, num_experts_per_tok=2),
    "qwen2_moe": _family(
        "qwen2_moe", "Qwen2MoeForCausalLM", moe_intermediate_size=40, num_experts_per_tok=2, num_experts=6,
        shared_expert_intermediate_size=48, norm_topk_prob=True,
    ),
    "gpt_oss": _family(
        "gpt_oss", "GptOssForCausalLM", num_local_experts=5, num_experts_per_tok=2, head_dim=16, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "deepseek_v3": _family(
        "deepseek_v3", "DeepseekV3ForCausalLM", moe_intermediate_size=40, num_experts_per_tok=2, n_routed_experts=8,
        n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5,
        q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, num_key_value_heads=4,
    ),
}  # fmt: skip
"""Mixtures of experts, whose checkpoints are written with the tensors' names as published."""


def write_checkpoint(family: str, folder: Path) -> Path:
    """config.json and model.safetensors (float32) of a family in `folder`: always the same bytes."""
    import torch
    from safetensors.torch import save_file
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = {**FAMILIES, **MIXTURES}[family]
    made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(hashlib.sha256(family.encode()).digest()[:4], "little"))
        model = AutoModelForCausalLM.from_config(made, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            # Biases, norms and stored buffers too, lest one that is lost goes unseen.
            stored = [tensor for name, tensor in model.named_buffers() if name in model.state_dict()]
            for parameter in [*model.parameters(), *(tensor for tensor in stored if tensor.is_floating_point())]:
                parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim == 1 else 0.05))
    if family in MIXTURES:
        model.save_pretrained(folder)
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    tied = model.all_tied_weights_keys
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}, indent=2))
    return folder
