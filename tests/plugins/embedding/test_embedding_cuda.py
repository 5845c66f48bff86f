"""Embedding lookups in Triton: rows of a table of their own."""

import pytest
import torch
from triton_interpreter import interpret

from enginesmith.plugins.embedding.cuda.embedding import embedding_kernel
from enginesmith.plugins.embedding.reference import embedding


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("width", [32, 100])
def test_takes_rows_and_marks_unknown_ids(dtype: torch.dtype, width: int) -> None:
    table = torch.randn(11, width).to(dtype)
    ids = torch.tensor([0, 10, 3, -1, 11, 3], dtype=torch.int32)
    y = torch.zeros(len(ids), width + 4)[:, :width]
    constants = {"ENTRIES": 11, "WIDTH": width, "Y_ROW": width + 4, "BLOCK": 64}
    interpret(embedding_kernel, (len(ids), -(-width // 64)), table, ids, y, **constants)
    expected = torch.from_numpy(embedding(table.float().numpy(), ids.numpy()))
    assert torch.equal(y.nan_to_num(7), expected.nan_to_num(7))
