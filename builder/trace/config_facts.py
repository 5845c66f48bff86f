"""What of a raw config.json matters to a trace, told without importing Transformers."""

from typing import Any

# How and where a checkpoint is stored, and which code its author would have us run.
_STORAGE_KEYS = {
    "_attn_implementation", "_name_or_path", "auto_map", "compression_config", "dtype", "quantization_config",
    "torch_dtype", "transformers_version",
}  # fmt: skip

CHANGING = ("longrope", "dynamic")


def without_storage(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that says what is computed."""
    return {key: value for key, value in config.items() if key not in _STORAGE_KEYS}


def depends_on_length(config: object) -> bool:
    """Whether any rope type in a raw config changes with the length of the sequence."""
    if isinstance(config, dict):
        kinds = (config.get("rope_type"), config.get("type"))
        return any(changes(kind) or kind == "su" for kind in kinds) or any(map(depends_on_length, config.values()))
    return isinstance(config, list) and any(map(depends_on_length, config))


def changes(kind: object) -> bool:
    """Whether a rope type recomputes its frequencies while the model runs."""
    return isinstance(kind, str) and any(name in kind for name in CHANGING)
