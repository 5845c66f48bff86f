"""Embedding lookup in NumPy. In the network it is standard ONNX: Gather along axis 0 of a parameter."""

import numpy as np

from ...quantization.quantized import QuantizedWeight


def embedding(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows of table [N, D] by ids [T] as float32 [T, D]; an id outside [0, N) gives a row of NaN."""
    known = (ids >= 0) & (ids < len(table))
    rows = table[np.where(known, ids, 0)].astype(np.float32)
    rows[~known] = np.nan
    return rows


def packed_embedding(weight: QuantizedWeight, group: int, ids: np.ndarray) -> np.ndarray:
    """The same of a table that is the head's weight, in integers; `group` 0 means one scale a row."""
    return embedding(weight.dequantize(group), ids)
