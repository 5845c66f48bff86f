"""Builds a tiny random checkpoint of every family with a mixture of experts, and compares it with Transformers.

python tests/builder/mixtures.py [FAMILY ...]: a line for each; a minute or two for ten of them. For each the prompt's
logits, whole, in chunks, token by token and in company, and 32 greedy tokens, against Transformers in float32; and the
logits must change when the stored tensors of a router or of the experts do.
"""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
import torch
from quick_compiler import quick_options
from step_engine import StepEngine
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.errors import EnginesmithError

FAMILIES = [
    "afmoe", "aria_text", "axk1", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe",
    "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "gpt_oss", "granitemoe", "granitemoe_swa",
    "granitemoeshared", "hunyuan_v1_moe", "hy_v3", "jetmoe", "kolibri1", "laguna", "longcat_flash", "mellum",
    "mimo_v2_flash", "minimax_m2", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "sarvam_moe", "solar_open",
]  # fmt: skip
# What a config calls its sizes; those that a family does not have are left out.
SIZES: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 40, "num_hidden_layers": 2,
    "shared_expert_intermediate_size": 48, "shared_intermediate_size": 48, "expert_ffn_hidden_size": 40,
    "num_attention_heads": 4, "num_key_value_heads": 2, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2,
    "head_dim": 16, "swa_head_dim": 16, "v_head_dim": 16, "swa_v_head_dim": 16, "kv_channels": 16, "q_lora_rank": 32,
    "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "qk_head_dim": 24, "num_experts": 6,
    "num_local_experts": 6, "n_routed_experts": 6, "moe_num_experts": 6, "num_experts_per_tok": 2, "moe_topk": 2,
    "moe_k": 2, "top_k": 2, "n_group": 3, "topk_group": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "max_position_embeddings": 128, "sliding_window": 4, "initializer_range": 0.2, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SEQUENCES = [np.random.default_rng(length).integers(3, 128, length).tolist() for length in (11, 1, 8)]
FP32_BAR = 1e-4  # of the logits' spread


def make_model(family: str) -> Any:
    """A tiny random model, in which nothing is zero that a checkpoint stores."""
    kind: Any = CONFIG_MAPPING[family]
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    default = kind().to_dict()
    always = ("num_key_value_heads", "head_dim", "n_routed_experts", "n_shared_experts", "num_experts_per_tok")
    sizes = {k: v for k, v in SIZES.items() if type(default.get(k)) is int or (k in always and k in default)}
    if default.get("kv_lora_rank"):
        sizes |= {"num_key_value_heads": 4, **({"head_dim": 8} if "head_dim" in sizes else {})}
    layers = default.get("num_hidden_layers")
    lists = {key: value for key, value in default.items() if isinstance(value, list) and len(value) == layers}
    config = kind(**sizes, **{key: [value[0], value[-1]] for key, value in lists.items()})
    torch.manual_seed(0)
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for _, tensor in stored_tensors(model):
            tensor.add_(torch.randn_like(tensor) * (0.2 if tensor.ndim == 1 else 0.05))
    return model.eval()


def stored_tensors(model: Any) -> Iterable[tuple[str, torch.Tensor]]:
    stored = model.state_dict()
    yield from model.named_parameters()
    yield from ((name, each) for name, each in model.named_buffers() if name in stored and each.is_floating_point())


def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.ptp(expected))


def idle(model: Any) -> list[str]:
    """Tensors of the last layer's router and experts that do not matter to the logits: their loss would go unseen."""
    expected, found = logits_of(model, SEQUENCES[0]), []
    last = f".layers.{model.config.num_hidden_layers - 1}."
    for name, tensor in stored_tensors(model):
        if last in name and any(part in name for part in ("expert", "gate", "router")):
            kept = tensor.detach().clone()
            with torch.no_grad():
                tensor.zero_()
                if distance(logits_of(model, SEQUENCES[0]), expected) < 10 * FP32_BAR:
                    found.append(name)
                tensor.copy_(kept)
    return found


def compare(engine: StepEngine, model: Any) -> tuple[float, list[str]]:
    """The furthest logit, as a share of the spread, and what else is wrong."""
    wrong, alone = [], [engine.run(tokens, len(tokens)) for tokens in SEQUENCES]
    worst = max(distance(a, logits_of(model, tokens)) for a, tokens in zip(alone, SEQUENCES, strict=True))
    if not all(np.array_equal(engine.run(SEQUENCES[0], *chunks), alone[0]) for chunks in ((3, 8), (8, 1, 1, 1))):
        wrong.append("chunks change bits")
    together = [engine.add(tokens) for tokens in SEQUENCES]
    engine.step(*((each, min(len(each.tokens), 5)) for each in together))
    engine.step(*((each, len(each.tokens) - 5) for each in together if len(each.tokens) > 5))
    if not all(np.array_equal(np.stack(each.logits), a) for each, a in zip(together, alone, strict=True)):
        wrong.append("company changes bits")
    for each in together:
        engine.remove(each)
    said = engine.greedy(SEQUENCES[0], 32)
    options = {"max_new_tokens": 32, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    generated = model.generate(torch.tensor([SEQUENCES[0]]), **options)[0, len(SEQUENCES[0]) :].tolist()
    return worst, wrong + (["greedy tokens differ"] if said != generated else [])


def check(family: str, folder: Path) -> str:
    model = make_model(family)
    model.save_pretrained(folder / "checkpoint")
    sizes = {"max_seq_len": 64, "max_batch_size": 64, "max_num_tokens": 64}
    config = BuildConfig.model_validate({"dtype": "fp32", "check": False, **sizes})
    report = build(folder / "checkpoint", folder / "engine", config)
    engine = StepEngine(folder / "engine")
    try:
        worst, wrong = compare(engine, model)
    finally:
        engine.close()
    wrong += [f"{name} does not matter" for name in idle(model)]
    wrong += ["logits differ"] if worst >= FP32_BAR else []
    experts = sum(tactic.kernel.startswith("experts<") for tactic in report.tactics)
    return f"{', '.join(wrong) or 'agrees'}; furthest logit {worst:.1e} of the spread, {experts} layers with experts"


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
    main(sys.argv[1:] or FAMILIES)
