"""Popular models at full size, traced, fused and lowered without weights: how long it takes, and how much memory.

python tests/builder/full_size.py [NAME ...]: a line for each, each in a process of its own; results go into
full_size.json beside this file, and into docs/models.md.
"""

import json
import math
import multiprocessing
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
from models_page import FULL_SIZE, PAGE, page, read

import enginesmith.builder.passes.pipeline
import enginesmith.builder.trace.trace_model  # noqa: F401  (before processes are forked)
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.lower import lower
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.trace.trace_model import trace_model
from enginesmith.plugins.discovery import kernels
from enginesmith.progress import NoProgress

MAX_SEQ_LEN = 8192
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
_YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
         "original_max_position_embeddings": 4096}  # fmt: skip
_GPT_OSS_YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                 "original_max_position_embeddings": 4096}  # fmt: skip


def _model(model_type: str, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocab: int, **more: Any):
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab, **more,
    }  # fmt: skip


CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": _model(
        "llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, rope_theta=5e5, rope_scaling=_LLAMA3 | {"factor": 32.0},
        max_position_embeddings=131072, tie_word_embeddings=True, rms_norm_eps=1e-5,
    ),
    "Llama-3.1-8B": _model(
        "llama", 4096, 14336, 32, 32, 8, 128256, rope_theta=5e5, rope_scaling=_LLAMA3, max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    ),
    "Llama-3.3-70B": _model(
        "llama", 8192, 28672, 80, 64, 8, 128256, rope_theta=5e5, rope_scaling=_LLAMA3, max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    ),
    "Qwen2.5-7B": _model("qwen2", 3584, 18944, 28, 28, 4, 152064, rope_theta=1e6, max_position_embeddings=32768),
    "Qwen3-8B": _model(
        "qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128, rope_theta=1e6, max_position_embeddings=40960
    ),
    "Qwen3-30B-A3B": _model(
        "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, rope_theta=1e6, max_position_embeddings=40960,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1,
    ),
    "gemma-2-9b": _model(
        "gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256, sliding_window=4096, attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0, query_pre_attn_scalar=256, max_position_embeddings=8192,
        hidden_activation="gelu_pytorch_tanh",
    ),
    "gemma-3-27b (text)": _model(
        "gemma3_text", 5376, 21504, 62, 32, 16, 262208, head_dim=128, sliding_window=1024, query_pre_attn_scalar=168,
        rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=6, max_position_embeddings=131072, hidden_activation="gelu_pytorch_tanh",
    ),
    "Mistral-7B-v0.3": _model(
        "mistral", 4096, 14336, 32, 32, 8, 32768, rope_theta=1e6, sliding_window=None, max_position_embeddings=32768
    ),
    "Mixtral-8x7B": _model(
        "mixtral", 4096, 14336, 32, 32, 8, 32000, rope_theta=1e6, sliding_window=None, max_position_embeddings=32768,
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "phi-4": _model("phi3", 5120, 17920, 40, 40, 10, 100352, rope_theta=250000, max_position_embeddings=16384,
                    pad_token_id=100349, bos_token_id=100257, eos_token_id=100265, sliding_window=None),
    "OLMoE-1B-7B": _model(
        "olmoe", 2048, 1024, 16, 16, 16, 50304, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False,
        max_position_embeddings=4096,
    ),
    "gpt-oss-20b": _model(
        "gpt_oss", 2880, 2880, 24, 64, 8, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
        sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12, rope_theta=150000,
        rope_scaling=_GPT_OSS_YARN, max_position_embeddings=131072, swiglu_limit=7.0,
    ),
    "GLM-4.5": _model(
        "glm4_moe", 5120, 12288, 92, 96, 8, 151552, head_dim=128, attention_bias=True, partial_rotary_factor=0.5,
        use_qk_norm=True, n_routed_experts=160, num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=1536,
        first_k_dense_replace=3, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
        rope_theta=1e6, max_position_embeddings=131072,
    ),
    "DeepSeek-V3": _model(
        "deepseek_v3", 7168, 18432, 61, 128, 128, 129280, moe_intermediate_size=2048, n_routed_experts=256,
        num_experts_per_tok=8, n_shared_experts=1, n_group=8, topk_group=4, first_k_dense_replace=3,
        routed_scaling_factor=2.5, norm_topk_prob=True, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, rope_scaling=_YARN, rope_theta=10000, max_position_embeddings=163840,
    ),
}  # fmt: skip


def measure(name: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    network = trace_model(CONFIGS[name], min(MAX_SEQ_LEN, CONFIGS[name]["max_position_embeddings"]), NoProgress())
    optimize(network)
    program = lower(network, BuildConfig(weights="int4"), kernels("cpu"))
    after = resource.getrusage(resource.RUSAGE_SELF)
    parameters = sum(math.prod(each.shape) for each in network.parameters.values())
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pipe.send(
        {
            "parameters": f"{parameters / 1e9:.1f} billion",
            "layers": network.num_layers,
            "operations": len(program.calls),
            "seconds": f"{seconds:.1f}",
            "memory": f"{after.ru_maxrss / 1e6:.2f} GB",
        }
    )


def main(names: list[str]) -> None:
    context = multiprocessing.get_context("fork")
    for name in names:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=measure, args=(name, sender))
        process.start()
        sender.close()
        result = receiver.recv()
        process.join()
        results = read(FULL_SIZE) | {name: result}
        ordered = {each: results[each] for each in CONFIGS if each in results}
        FULL_SIZE.write_text(json.dumps(ordered, indent=1) + "\n")
        print(f"{name:22}", result, flush=True)
    PAGE.write_text(page(read()))


if __name__ == "__main__":
    main(sys.argv[1:] or list(CONFIGS))
