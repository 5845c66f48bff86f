"""Which rope types change with the length of the sequence."""

CHANGING = ("longrope", "dynamic")


def depends_on_length(config: object) -> bool:
    """Whether any rope type in a raw config changes with the length of the sequence."""
    if isinstance(config, dict):
        kinds = (config.get("rope_type"), config.get("type"))
        return any(changes(kind) or kind == "su" for kind in kinds) or any(map(depends_on_length, config.values()))
    return isinstance(config, list) and any(map(depends_on_length, config))


def changes(kind: object) -> bool:
    """Whether a rope type recomputes its frequencies while the model runs."""
    return isinstance(kind, str) and any(name in kind for name in CHANGING)
