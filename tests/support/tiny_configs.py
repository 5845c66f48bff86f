"""A tiny config of any model type of Transformers: sizes by the names that configs give them, and exceptions."""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

VOCABULARY, HIDDEN, HEADS, HEAD = 128, 64, 4, 16


def _named(value: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# Only numbers that a config has by default are replaced; the others keep the meaning that their absence has.
SIZES: dict[str, Any] = {
    **_named(HIDDEN, "hidden_size n_embd d_model dim embedding_size word_embed_proj_dim embed_dim "
             "attention_hidden_size cross_hidden_size lru_width conv_dim hidden_size_conv"),
    **_named(96, "intermediate_size n_inner ffn_dim d_inner d_ff decoder_ffn_dim encoder_ffn_dim ffn_hidden_size "
             "feed_forward_size dff intermediate_size_mlp dense_intermediate_size dim_ff mlp_intermediate_size "
             "block_ff_dim"),
    **_named(40, "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
             "moe_shared_expert_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size"),
    **_named(2, "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_decoder_layers "
             "num_encoder_layers num_experts_per_tok moe_topk top_k moe_k moe_top_k num_selected_experts "
             "num_experts_per_token experts_per_token top_k_experts mamba_expand topk_group"),
    **_named(HEADS, "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads "
             "num_decoder_attention_heads num_encoder_attention_heads index_n_heads mamba_n_heads mamba_num_heads "
             "linear_num_heads linear_num_value_heads"),
    **_named(HEAD, "head_dim d_head dim_head attention_head_dim kv_channels d_kv global_head_dim swa_head_dim "
             "v_head_dim swa_v_head_dim qk_nope_head_dim index_head_dim linear_key_head_dim linear_value_head_dim "
             "linear_head_dim"),
    **_named(VOCABULARY, "vocab_size vocab_size_per_layer_input n_vocab"),
    **_named(6, "num_experts num_local_experts n_routed_experts moe_num_experts moe_num_primary_experts "
             "num_routed_experts"),
    **_named(128, "max_position_embeddings n_positions n_ctx max_sequence_length max_seq_len max_length mamba_d_ssm"),
    **_named(4, "sliding_window attention_window sliding_window_size local_window_size window_size "
             "attention_chunk_size chunk_size mamba_chunk_size mamba_dt_rank time_step_rank"),
    **_named(8, "rotary_dim rope_dim qk_rope_head_dim block_multiple_of hidden_size_per_layer_input mamba_d_state "
             "ssm_state_size state_size index_topk"),
    **_named(32, "q_lora_rank kv_lora_rank o_lora_rank mamba_d_head mamba_head_dim block_size"),
    **_named(1, "n_shared_experts first_k_dense_replace mamba_ngroups n_groups mamba_n_groups"),
    "qk_head_dim": 24, "n_group": 3, "num_expert_group": 3, "linear_num_key_heads": 2, "initializer_range": 0.2,
    "init_std": 0.2, "initializer_factor": 1.0, "num_kv_shared_layers": 0,
}  # fmt: skip
_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "swa_num_key_value_heads",
    "num_global_key_value_heads", "multi_query_group_num", "kv_n_heads",
)  # fmt: skip
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_SPECIAL_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_MAMBA = {"state_size": 12, "conv_kernel": 4, "expand": 2, "time_step_rank": 5}
_MAMBA2 = {
    "mamba_d_state": 12, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_chunk_size": 4,
    "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 12, "linear_value_head_dim": 20,
}  # fmt: skip
_KIMI = {
    "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse"], "linear_num_heads": 4, "linear_head_dim": 12, "num_expert_group": 3,
    "topk_group": 2, "num_experts_per_token": 2, "num_key_value_heads": 4, "head_dim": 8,
}  # fmt: skip
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "blt": {
        "encoder_hash_byte_group_vocab": 64,
        **{part: {"vocab_size": 260, "num_hidden_layers": 1} for part in ("encoder_config", "decoder_config")},
    },
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 96, "hidden_size": HIDDEN, "moe_num_experts": 6, "moe_top_k": 2},
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 6, "first_k_dense_replace": 1},
    "dory": {
        "num_hidden_layers": 12, "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 3,
        "n_input_layers": 4, "n_recurrent_layers": 4, "n_output_layers": 4,
    },
    "dots1": {"n_routed_experts": 6, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "gemma3n_text": {
        "hidden_size_per_layer_input": 8, "laurel_rank": 8, "num_hidden_layers": 4, "intermediate_size": 96,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.9, 0.0] * 2,
    },
    "hunyuan_v1_dense": {"head_dim": HEAD},
    "hunyuan_v1_moe": {"head_dim": HEAD, "moe_topk": 2, "num_experts": 6},
    "longcat_flash": {"zero_expert_num": 2, "moe_topk": 3},
    "ministral": {"head_dim": HEAD},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [8, 16], "attention_head_size": HEAD},
    "roc_bert": {
        "pronunciation_embed_dim": 16, "pronunciation_vocab_size": 32, "shape_embed_dim": 16, "shape_vocab_size": 32,
    },
    "xlm": {"emb_dim": HIDDEN, "causal": True},
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 32},
    # Hybrids have a layer of each kind.
    "bailing_hybrid": _KIMI | {"num_nextn_predict_layers": 0},
    "bamba": _MAMBA2 | {"attn_layer_indices": [1]},
    "falcon_h1": _MAMBA2 | {"mamba_d_ssm": 128, "ssm_multipliers": [1.5, 0.9, 1.1, 1.2, 0.8]},
    "falcon_mamba": _MAMBA,
    "granitemoehybrid": _MAMBA2 | {"layer_types": ["mamba", "attention"]},
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_d_state": 12, "mamba_dt_rank": 5,
    },
    "kimi_linear": _KIMI,
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba": _MAMBA,
    "mamba2": {"num_heads": 4, "head_dim": 32, "expand": 2, "state_size": 12, "n_groups": 2, "chunk_size": 4},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 32,
        "ssm_state_size": 12, "n_groups": 2, "chunk_size": 4,
    },
    "olmo_hybrid": _DELTA | {"linear_num_key_heads": 4},
    "qwen3_5_moe_text": _DELTA,
    "qwen3_5_text": _DELTA,
    "qwen3_next": _DELTA,
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": HIDDEN, "num_key_value_heads": 1},
    "rwkv": {"attention_hidden_size": HIDDEN, "rescale_every": 1},
    "xlstm": {"qk_dim_factor": 1.0},
    "zamba": {
        "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "attention_hidden_size": 2 * HIDDEN,
        "attention_head_dim": 2 * HIDDEN // HEADS, "mamba_d_state": 12, "mamba_dt_rank": 5,
        "num_key_value_heads": HEADS,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"], "attention_hidden_size": 2 * HIDDEN,
        "attention_head_dim": 2 * HIDDEN // HEADS, "mamba_d_state": 12, "mamba_headdim": 32, "n_mamba_heads": 4,
        "mamba_ngroups": 2, "mamba_expand": 2, "chunk_size": 4, "num_mem_blocks": 1, "num_key_value_heads": HEADS,
    },
}  # fmt: skip
"""What a type needs besides, because its default config is none of a model, or because its sizes hang together."""


def tiny_config(model_type: str) -> Any:
    """A config object of that type. Raises what its class raises where the sizes do not go together."""
    from transformers import CONFIG_MAPPING

    config_class: Any = CONFIG_MAPPING[model_type]
    config = config_class(**_merged(_changes(config_class), EXCEPTIONS.get(model_type, {})))
    parts: list[Any] = [config, *(getattr(config, name, None) for name in config_class.sub_configs)]
    for part in parts:
        if hasattr(part, "is_decoder"):
            part.is_decoder = True
    return config


def _merged(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, and `others` over them, nested ones piece by piece; ... takes one out."""
    merged = dict(values)
    for name, value in others.items():
        nested = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merged(merged[name], value) if nested else value
    return {name: value for name, value in merged.items() if value is not ...}


def _changes(config_class: Any, depth: int = 0) -> dict[str, Any]:
    """What makes a config tiny, as keywords of its class."""
    default = _defaults(config_class)
    changes = {name: size for name, size in SIZES.items() if type(default.get(name)) in (int, float)}
    changes |= {name: 1 if default[name] == 1 else _kv_heads(default, name) for name in _KV_HEADS if name in default}
    if isinstance(default.get("kv_lora_rank"), int):
        changes |= {"num_key_value_heads": HEADS, **({"head_dim": 8} if "head_dim" in changes else {})}
    changes |= _special_tokens(default)
    changes |= _layer_lists(default)
    changes |= {name: _rope(default[name]) for name in ("rope_parameters", "rope_scaling") if default.get(name)}
    if depth < 2:
        changes |= _nested(config_class, default, depth)
    return {name: value for name, value in changes.items() if value is not None}


def _defaults(config_class: Any) -> dict[str, Any]:
    try:
        return config_class().to_dict()
    except Exception:  # one that is never without nested configs
        parameters = inspect.signature(config_class.__init__).parameters
        return {name: parameter.default for name, parameter in parameters.items()}


def _kv_heads(default: Mapping[str, Any], name: str) -> int | None:
    heads = next((default[each] for each in ("num_attention_heads", "n_head", "n_heads") if each in default), None)
    if type(default[name]) is not int:
        return 2 if name == "num_key_value_heads" and default[name] is None else None
    return HEADS if default[name] == heads else 2


def _special_tokens(default: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens that the vocabulary does not have, moved into it."""
    found: dict[str, Any] = {}
    for name, value in default.items():
        if not name.endswith(("_token_id", "_token_index")):
            continue
        tokens = [token for token in (value if isinstance(value, (list, tuple)) else [value]) if type(token) is int]
        if any(token >= VOCABULARY for token in tokens):
            found[name] = _SPECIAL_TOKENS.get(name, 3)
    return found


def _layer_lists(default: Mapping[str, Any]) -> dict[str, Any]:
    """Lists with an entry for each layer, cut to two layers or to one of each kind, at most four."""
    layers = next((default[name] for name in _LAYERS if default.get(name)), 0)
    lists = {
        name: value
        for name, value in default.items()
        if isinstance(value, (list, tuple)) and len(value) == layers and layers > 2
    }
    if not lists:
        return {}
    kinds: list[tuple[Any, ...]] = []
    for kind in zip(*lists.values(), strict=True):
        if kind not in kinds:
            kinds.append(kind)
    kinds = (kinds * 2)[: max(2, min(len(kinds), 4))]
    cut = {name: [kind[i] for kind in kinds] for i, name in enumerate(lists)}
    return cut | {name: len(kinds) for name in _LAYERS if name in default}


def _rope(parameters: Any) -> Any:
    """Rotary parameters with as many factors and sections as a small head has."""
    if not isinstance(parameters, dict):
        return copy.deepcopy(parameters)
    small = {name: _rope(value) for name, value in parameters.items()}
    if "mrope_section" in small:
        small["mrope_section"] = [2, 3, 3]
    for name in ("short_factor", "long_factor"):
        if small.get(name):
            small[name] = small[name][: HEAD // 2]
    return small


def _nested(config_class: Any, default: Mapping[str, Any], depth: int) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    found: dict[str, Any] = {}
    for name, kind in config_class.sub_configs.items():
        stated = default.get(name)
        model_type = stated.get("model_type") if isinstance(stated, dict) else None
        if isinstance(kind, type) and kind.__name__ != "AutoConfig":
            found[name] = _changes(kind, depth + 1)
        elif isinstance(model_type, str) and model_type in CONFIG_MAPPING:
            found[name] = {**_changes(CONFIG_MAPPING[model_type], depth + 1), "model_type": model_type}
    return found
