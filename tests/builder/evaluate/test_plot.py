import re
import sys
from pathlib import Path

import pytest

from enginesmith.builder.evaluate.plot import plot_layers
from enginesmith.builder.quantize.report import LayerReport
from enginesmith.errors import EvaluationError
from enginesmith.extras import install_command

LAYERS = [
    LayerReport(f"model.layers.{i}.{kind}", "int4-g128", 0.1, 0.01 * (i + 1))
    for i in range(3)
    for kind in ("self_attn.q_proj", "mlp.down_proj")
] + [LayerReport("lm_head", "int8", 0.02, None)]


def test_a_png_is_written(tmp_path: Path) -> None:
    plot_layers(LAYERS, tmp_path / "layers.png", "a model")
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["layers.png"]


def test_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="no errors of layers"):
        plot_layers([LayerReport("x", "", 0.1, 0.0)], tmp_path / "layers.png")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(EvaluationError, match=re.escape(install_command("plot"))):
        plot_layers(LAYERS, tmp_path / "layers.png")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="cannot be written"):
        plot_layers(LAYERS, tmp_path / "file" / "layers.png")
