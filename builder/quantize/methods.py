"""What each method does to one decoder layer, given its parameters and what calibration tells of its inputs."""

from collections.abc import Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...errors import BuildError
from ...quantization import awq, fp8, gptq, rtn, smoothquant
from ...quantization.activation_scale import static_activation_scale
from ...quantization.feedback import Feedback
from ...quantization.metric import Metric
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme
from ...quantization.statistics import InputStatistics, relative_error
from ...runtime.threads import physical_cores
from .blas import one_thread_a_product
from .feeds import InputGroup, Layer
from .quantize_options import QuantizeConfig
from .selection import Block

Parameters = MutableMapping[str, np.ndarray]
Guide = Metric | Feedback
Statistics = Mapping[str, InputStatistics]  # of the input of each group, by the name of its first layer


_ROUNDED_IN_TURN = ("awq", "gptq", "fp8")  # where calibration data tells how columns can make up for each other


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer's new weight, float32 `values` [N, K] that it stands for, and how far it is off; see LayerReport."""

    layer: Layer
    weight: QuantizedWeight
    values: np.ndarray
    input_scale: float | None
    weight_error: float
    output_error: float | None


def quantize_block(
    block: Block,
    parameters: Parameters,
    dtypes: Mapping[str, np.dtype],
    statistics: Statistics,
    config: QuantizeConfig,
) -> list[QuantizedLayer]:
    """Quantize all chosen layers of a decoder layer.

    `parameters`: float32 arrays by name. Where an input is scaled, those that absorb it are replaced by new ones,
    rounded to `dtypes`, in which they will be stored, and weights by ones with scaled columns. `statistics` may be
    empty for a method without calibration. Raises BuildError naming the layer that cannot be quantized.
    """
    scaled: dict[str, InputStatistics] = dict(statistics)
    with one_thread_a_product(), ThreadPoolExecutor(physical_cores()) as threads:
        if config.method in ("awq", "smoothquant"):
            groups = [group for group in block.groups if group.fold is not None]
            found = threads.map(lambda g: _search(g, parameters, statistics[g.layers[0].name], config), groups)
            for group, scale in zip(groups, list(found), strict=True):
                scale = _fold(group, parameters, dtypes, scale, block)
                scaled[group.layers[0].name] = statistics[group.layers[0].name].divided(scale)
        inputs = [scaled.get(group.layers[0].name) for group in block.groups]
        guides = list(threads.map(lambda group, found: _guide(group, found, config), block.groups, inputs))
        jobs = [(layer, at) for at, group in enumerate(block.groups) for layer in group.layers]

        def quantize(job: tuple[Layer, int]) -> QuantizedLayer:
            layer, at = job
            return _quantize(layer, parameters[layer.parameter], inputs[at], guides[at], config)

        return list(threads.map(quantize, jobs))


def _search(group: InputGroup, parameters: Parameters, found: InputStatistics, config: QuantizeConfig) -> np.ndarray:
    weights = [parameters[layer.parameter] for layer in group.layers]
    tied = group.fold.tied if group.fold else None
    with _naming(group.layers[0]):
        if config.method == "awq":
            return awq.search_scales(weights, config.scheme.weight, found, tied)
        return smoothquant.search_scales(weights, found, tied)


def _fold(
    group: InputGroup, parameters: Parameters, dtypes: Mapping[str, np.dtype], scale: np.ndarray, block: Block
) -> np.ndarray:
    """Divide a group's input by a scale, and multiply columns by it; gives the scale [K] that rounding makes of it.

    A norm's weight is stored in few bits: what its rounding changes, the layers' columns make up for.
    """
    fold = group.fold
    assert fold is not None
    before = {name: parameters[name] for name in fold.parameters}
    fold.apply(parameters, scale)
    rounded_later = {layer.parameter for layer in block.layers}
    for divisor in fold.divisors:
        name = divisor.parameter
        if name in rounded_later:
            continue
        parameters[name] = parameters[name].astype(dtypes[name]).astype(np.float32)
        if divisor is fold.divisors[0] and parameters[name].shape == scale.shape == divisor.channels.shape:
            offset = np.float32(divisor.offset)
            with np.errstate(divide="ignore", invalid="ignore"):
                exact = (before[name] + offset) / (parameters[name] + offset)
            usable = np.isfinite(exact) & (exact > 0) & (divisor.channels >= 0)
            scale = scale.copy()
            scale[divisor.channels[usable]] = exact[usable]
    for layer in group.layers:
        parameters[layer.parameter] = parameters[layer.parameter] * scale
    return scale


def _guide(group: InputGroup, statistics: InputStatistics | None, config: QuantizeConfig) -> Guide | None:
    """What rounding is to know of the input that a group's layers share; None where nothing is known."""
    if statistics is None:
        return None
    size = config.scheme.weight.group_size
    with _naming(group.layers[0]):
        if config.method in _ROUNDED_IN_TURN:
            return Feedback.of(statistics.hessian, size)
        return Metric.of(statistics.mean_hessian, size)


def _quantize(
    layer: Layer, weight: np.ndarray, statistics: InputStatistics | None, guide: Guide | None, config: QuantizeConfig
) -> QuantizedLayer:
    scheme = config.scheme
    with _naming(layer):
        if isinstance(guide, Feedback):
            made = gptq.quantize(weight, scheme.weight, guide, per_tensor=config.per_tensor)
        elif config.method == "fp8":
            made = fp8.quantize(weight, scheme.weight, per_tensor=config.per_tensor)
        else:
            made = rtn.quantize(weight, scheme.weight, storable=True, metric=guide)
    values = made.dequantize(scheme.weight.group_size)
    is_static = scheme.activation is ActivationScheme.STATIC and statistics is not None
    size = float(np.linalg.norm(weight))
    return QuantizedLayer(
        layer,
        made,
        values,
        static_activation_scale(statistics, scheme.weight.type) if is_static and statistics is not None else None,
        float(np.linalg.norm(values - weight)) / size if size else 0.0,
        None if statistics is None else relative_error(weight, values, statistics),
    )


@contextmanager
def _naming(layer: Layer) -> Iterator[None]:
    try:
        yield
    except BuildError as error:
        raise BuildError(f"{layer.parameter}: {error}") from error
