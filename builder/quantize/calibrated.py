"""Quantize with calibration: decoder layer by decoder layer, each on the hidden states that reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from ...checkpoint.weights import Weights
from ...progress import Progress
from ...quantization.statistics import InputStatistics
from ..network import Network
from .calibration import Calibration
from .kv_scales import OBSERVED, observed, register_observed_attention, scales
from .layered import LayeredModel, Parameters
from .methods import quantize_block
from .quantize_options import QuantizeConfig
from .selection import Block, Selection
from .shards import Shards, require_finite

_TOKENS_AT_ONCE = 2048


def quantize_calibrated(
    network: Network,
    weights: Weights,
    selection: Selection,
    shards: Shards,
    calibration: Calibration,
    config: QuantizeConfig,
    progress: Progress,
) -> None:
    """Save a shard for every decoder layer.

    With GPTQ a layer sees what quantized layers before it make of the data, as in its authors' code; with AWQ and
    SmoothQuant, as in theirs, what the unquantized ones do.
    """
    missing = shards.missing
    if not missing:
        return
    with progress.task("calibrate", len(selection.blocks)) as task:
        length = calibration.tokens.shape[1]
        register_observed_attention()
        model = LayeredModel(network, weights, length, OBSERVED if config.kv_cache else "eager")
        states = [model.embed(tokens) for tokens in _batches(calibration.tokens)]
        for index, block in enumerate(selection.blocks[: missing[-1] + 1]):
            parameters = model.load(index)
            if index in missing:
                states = _quantize(model, index, block, parameters, states, shards, config, index == missing[-1])
            else:
                if config.method == "gptq":
                    shapes = {name: array.shape for name, array in parameters.items()}
                    model.assign(shards.restore(block, shapes))
                states = [model.run(index, state) for state in states]
            model.unload(index)
            task.advance()


def _quantize(
    model: LayeredModel,
    index: int,
    block: Block,
    parameters: Parameters,
    states: list[Tensor],
    shards: Shards,
    config: QuantizeConfig,
    is_last: bool,
) -> list[Tensor]:
    """Quantize decoder layer `index`, which is loaded, and save it; gives the hidden states for the next one, which
    mean nothing if there is none."""
    for name, array in parameters.items():
        require_finite(name, array)
    with _observed(model, block) as statistics, observed() as cached:
        outputs = [model.run(index, state) for state in states]
    kv_scales = scales(cached, model.names(), config.kv_cache) if config.kv_cache else {}
    before = dict(parameters)
    layers = quantize_block(block, parameters, shards.dtypes(block), statistics, config)
    shards.save(block, {n: array for n, array in parameters.items() if array is not before[n]}, layers, kv_scales)
    if config.method != "gptq" or is_last:
        return outputs
    model.assign({made.layer.parameter: made.values for made in layers})
    return [model.run(index, state) for state in states]


@contextmanager
def _observed(model: LayeredModel, block: Block) -> Iterator[dict[str, InputStatistics]]:
    """Statistics of each group's input, by the name of its first layer, of everything that runs in the block."""
    statistics: dict[str, InputStatistics] = {}

    def hook_of(name: str) -> Any:
        def hook(_: Any, arguments: tuple[Tensor, ...]) -> None:
            x = arguments[0]
            statistics[name].add(x.reshape(-1, x.shape[-1]).numpy())

        return hook

    handles = []
    for first in (group.layers[0] for group in block.groups):
        statistics[first.name] = InputStatistics.empty(first.k)
        handles.append(model.module(first.name).register_forward_pre_hook(hook_of(first.name)))
    try:
        yield statistics
    finally:
        for handle in handles:
            handle.remove()


def _batches(tokens: np.ndarray) -> list[np.ndarray]:
    """Sequences [S, T] in parts of a few thousand tokens."""
    each = max(1, _TOKENS_AT_ONCE // tokens.shape[1])
    return [tokens[first : first + each] for first in range(0, len(tokens), each)]
