import json
import math
from pathlib import Path

import pytest

from enginesmith.builder.evaluate.layers import read_layers, weight_errors
from enginesmith.builder.quantize.report import LayerReport
from enginesmith.errors import CheckpointError

REPORT = {
    "method": "awq",
    "layers": [
        {"name": "model.layers.3.mlp.up_proj", "scheme": "int4-g128", "weight_error": 0.1, "output_error": 0.05},
        {"name": "lm_head", "scheme": "int8", "weight_error": 0.2, "output_error": None},
    ],
}


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "quantization_report.json"
    path.write_text(json.dumps(REPORT))
    first, last = read_layers(path)
    assert first == LayerReport("model.layers.3.mlp.up_proj", "int4-g128", 0.1, 0.05)
    assert (first.kind, first.depth, first.error) == ("up_proj", 3, 0.05)
    assert (last.kind, last.depth, last.error) == ("lm_head", None, 0.2)


NAN = {"name": "x", "scheme": "", "weight_error": math.nan, "output_error": None}


@pytest.mark.parametrize("data", [{}, {"layers": [{"name": "x"}]}, {"layers": 3}, {"layers": ["x"]}, {"layers": [NAN]}])
def test_what_is_no_report_is_named(tmp_path: Path, data: object) -> None:
    path = tmp_path / "quantization_report.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=r"quantization_report\.json: not a quantization report"):
        read_layers(path)


def test_weights_are_compared_by_name() -> None:
    import torch
    from torch import nn

    def model() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))

    changed, reference = model(), model()
    assert weight_errors(changed, reference) == []
    with torch.no_grad():
        changed.get_parameter("2.weight").mul_(1.25)
    (found,) = weight_errors(changed, reference)
    assert found.name == "2"
    assert found.weight_error == pytest.approx(0.25)
    assert found.output_error is None
