"""GPTQ: round a weight column by column, each column making up for the errors of those before it.

Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers" (2022). Its updates are those that Chee, Cai, Kuleshov, De Sa, "QuIP" (2023) call LDLQ; see `Feedback`.
Groups are rounded one after another, those of the largest inputs first, so that each finds its grid when what it has to
make up for is known, and is a run of inputs all the same (GPTQModel calls this order "group aware").
"""

import ml_dtypes
import numpy as np

from . import fp8, storable
from .feedback import Feedback
from .quantized import QuantizedWeight
from .scheme import WeightScheme, WeightType


def quantize(
    weight: np.ndarray, scheme: WeightScheme, feedback: Feedback, *, per_tensor: bool = False
) -> QuantizedWeight:
    """Quantize a [N, K] weight to int8, int4 or FP8 so that its outputs on the calibration inputs change least.

    `feedback` is that of the layer's inputs and of the scheme's groups. Scales and zeros are storable. Those of a group
    of integers are searched for as `storable.quantize` does, for the weights that would make up for all errors so far,
    where errors are measured after later groups will have made up for them. Scales of a channel, and of FP8
    (`fp8.quantize`, `per_tensor` or not), are found first, for the weights as they are.

    Raises BuildError as `rtn.quantize` does.
    """
    is_fp8 = scheme.type is WeightType.FP8
    lowest, highest = (-fp8.LARGEST, fp8.LARGEST) if is_fp8 else storable.levels(scheme.type)
    nearest = fp8.nearest if is_fp8 else np.rint
    n, k = weight.shape
    scale, zero = np.zeros((2, scheme.groups(k), n), np.float32)
    searches = feedback.has_whole_groups and not is_fp8
    if searches:
        storable.check(weight, scheme)
    elif is_fp8:
        scale[:] = fp8.quantize(weight, scheme, per_tensor=per_tensor).scale.T
    else:
        grid = storable.quantize(weight, scheme)
        scale[:], zero[:] = grid.scale.T, 0 if grid.zero is None else grid.zero.T
    column = np.asarray(weight, np.float32).T[feedback.order]  # [K, N], in order
    error, q = np.empty_like(column), np.empty((k, n), ml_dtypes.float8_e4m3fn if is_fp8 else np.int8)
    for run in feedback.runs:
        first, part = run.columns.start, run.columns
        wanted = column[part] + feedback.matrix[part, :first] @ error[:first]
        if searches:
            scale[run.group], zero[run.group] = storable.search_group(wanted, scheme, run.factor)
        step, middle = scale[run.group], zero[run.group]
        left = np.empty_like(wanted)  # of what is wanted, after rounding
        for i, at in enumerate(range(first, part.stop)):
            value = wanted[i] + feedback.matrix[at, first:at] @ left[:i]
            level = np.clip(nearest(value / step) + middle, lowest, highest)
            rounded = step * (level - middle)
            left[i], error[at] = wanted[i] - rounded, column[at] - rounded
            q[feedback.order[at]] = level
    q, scale, zero = (np.ascontiguousarray(array.T) for array in (q, scale, zero))
    return QuantizedWeight(q, scale, None if scheme.symmetric else zero)
