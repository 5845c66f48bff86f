"""What of a raw config.json matters to a trace, told without importing Transformers."""

import math
from collections.abc import Mapping
from typing import Any

# Where and how a checkpoint is stored, which code its author would have us run, how Transformers' outputs are returned,
# and labels of classifiers: none of it shapes a network.
_IGNORED = {
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_auto_class",
    "_commit_hash", "_experts_implementation", "_experts_implementation_internal", "_name_or_path",
    "_output_attentions", "_post_init_done", "attn_implementation", "auto_map", "compression_config",
    "custom_pipelines", "distributed_config", "dtype", "experts_implementation", "finetuning_task", "fusion_config",
    "id2label", "kernel_config", "label2id", "name_or_path", "num_labels", "output_attentions",
    "output_hidden_states", "problem_type", "quantization_config", "return_dict", "task_specific_params",
    "torch_dtype", "torchscript", "transformers_version", "transformers_weights", "use_kernels",
}  # fmt: skip
_FLOATS = {
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "NaN": math.nan,
}  # as Transformers writes them: {"__float__": "NaN"}

CHANGING = ("longrope", "dynamic")


def cleaned(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a raw config.json that decide what the model computes; tracer and reference use no others."""
    return {key: _cleaned(value) for key, value in config.items() if key not in _IGNORED}


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = value.get("__float__") if len(value) == 1 else None
    return _FLOATS[tag] if isinstance(tag, str) and tag in _FLOATS else cleaned(value)


def depends_on_length(config: object) -> bool:
    """Whether any rope type in a raw config changes with the length of the sequence."""
    if isinstance(config, dict):
        kinds = (config.get("rope_type"), config.get("type"))
        return any(changes(kind) or kind == "su" for kind in kinds) or any(map(depends_on_length, config.values()))
    return isinstance(config, list) and any(map(depends_on_length, config))


def changes(kind: object) -> bool:
    """Whether a rope type recomputes its frequencies while the model runs."""
    return isinstance(kind, str) and any(name in kind for name in CHANGING)
