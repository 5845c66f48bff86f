"""Which linear layers are quantized, decoder layer by decoder layer, and which are left alone and why."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...errors import BuildError, shown
from ..network import Network
from .blocks import block_of, blocks_of
from .feeds import InputGroup, Layer, read_feeds

_PATTERN = "re:"
_SHOWN = 3


@dataclass(frozen=True)
class Block:
    """A decoder layer: its name, its groups of layers to quantize, and all of its parameters' names."""

    name: str
    groups: tuple[InputGroup, ...]
    parameters: tuple[str, ...]

    @property
    def layers(self) -> list[Layer]:
        return [layer for group in self.groups for layer in group.layers]


@dataclass(frozen=True)
class Selection:
    """Decoder layers in order, and linear layers that stay as they are: name -> reason."""

    blocks: list[Block] = field(default_factory=list)
    left_alone: dict[str, str] = field(default_factory=dict)

    @property
    def layers(self) -> list[Layer]:
        """All that are quantized."""
        return [layer for block in self.blocks for layer in block.layers]


def select(network: Network, ignore: Sequence[str]) -> Selection:
    """Choose layers. `ignore`: module names, or "re:" and a regular expression that matches a name's beginning.

    A fold that would change a layer that is left alone, or a parameter outside of its decoder layer, is left out.
    Raises BuildError for a pattern that is none or that no layer matches, and where nothing is left to quantize.
    """
    feeds = read_feeds(network)
    found = Selection(left_alone=dict(feeds.others))
    matches = _matcher(ignore, [layer.name for group in feeds.groups for layer in group.layers])
    for layer in (layer for group in feeds.groups for layer in group.layers):
        if layer.is_head:
            found.left_alone[layer.name] = "it is the head"
        elif matches(layer.name):
            found.left_alone[layer.name] = "ignored"
        elif block_of(layer.name) is None:
            found.left_alone[layer.name] = "it is in no decoder layer"
    for name in blocks_of(network.parameters):
        parameters = tuple(each for each in network.parameters if block_of(each) == name)
        groups = [_kept(group, found.left_alone, parameters) for group in feeds.groups if _is_in(group, name)]
        found.blocks.append(Block(name, tuple(group for group in groups if group.layers), parameters))
    if not any(block.groups for block in found.blocks):
        reasons = ", ".join(f"{name} ({reason})" for name, reason in list(found.left_alone.items())[:_SHOWN])
        raise BuildError(
            f"{network.architecture} has no linear layer to quantize; of {len(found.left_alone)}, all are left alone: "
            f"{reasons or 'none'}"
        )
    return found


def _is_in(group: InputGroup, block: str) -> bool:
    return any(block_of(layer.name) == block for layer in group.layers)


def _kept(group: InputGroup, left_alone: Iterable[str], parameters: Sequence[str]) -> InputGroup:
    """The group without layers that are left alone, and without a fold that changes parameters outside this block."""
    alone = set(left_alone)
    layers = tuple(layer for layer in group.layers if layer.name not in alone)
    changed = group.fold.parameters if group.fold else ()
    whole = len(layers) == len(group.layers)
    ours = all(each in parameters and each.rpartition(".")[0] not in alone for each in changed)
    return replace(group, layers=layers, fold=group.fold if whole and ours else None)


class _matcher:
    """Whether a layer's name is on the list; every entry of it must match one of `names`."""

    def __init__(self, ignore: Sequence[str], names: Sequence[str]) -> None:
        self._names = {each for each in ignore if not each.startswith(_PATTERN)}
        self._patterns = [_compiled(each) for each in ignore if each.startswith(_PATTERN)]
        unknown = [each for each in self._names if each not in names]
        unknown += [f"{_PATTERN}{p.pattern}" for p in self._patterns if not any(p.match(name) for name in names)]
        if unknown:
            raise BuildError(
                f"ignore: no linear layer is named {', '.join(map(shown, sorted(unknown)))}; there are "
                f"{', '.join(names[:_SHOWN])} and {max(len(names) - _SHOWN, 0)} more. A pattern begins with 're:'."
            )

    def __call__(self, name: str) -> bool:
        return name in self._names or any(pattern.match(name) for pattern in self._patterns)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.removeprefix(_PATTERN))
    except re.error as error:
        raise BuildError(f"ignore: {text} is no regular expression: {error}") from None
