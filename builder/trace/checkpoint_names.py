"""The names under which a checkpoint holds a model's tensors."""

from torch import nn

from ..network import Parameter


def tied_parameters(model: nn.Module) -> dict[str, str]:
    """Other name -> owner's name, for parameters that share a tensor; the owner is the one Transformers copies from."""
    sources = set((getattr(model, "all_tied_weights_keys", None) or {}).values())
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    tied: dict[str, str] = {}
    for group in groups.values():
        owner = next((name for name in group if name in sources), group[0])
        tied.update({name: owner for name in group if name != owner})
    return tied


def checkpoint_parameters(model: nn.Module, tied: dict[str, str]) -> dict[str, Parameter]:
    """Every tensor of the model's state, shared ones once."""
    state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}
    return {name: Parameter(name, shape) for name, shape in state.items()}


def converts(model: nn.Module) -> bool:
    """Whether Transformers renames, joins or cuts tensors when it loads a checkpoint of the model."""
    from transformers.conversion_mapping import get_model_conversion_mapping

    return bool(get_model_conversion_mapping(model, add_legacy=False))  # type: ignore[arg-type]
