"""A plugin outside the package: a folder and its pass are all that a new operation takes."""

import json
from pathlib import Path

import numpy as np
import pytest

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.plugins import discovery

PLUGIN = "softcap_plugin"


def test_a_model_is_built_and_checked_with_it(tiny_checkpoint, tmp_path: Path) -> None:
    """The build's check compares the engine with Transformers, whose gemma2 caps its logits."""
    config = BuildConfig(dtype="fp32", max_num_tokens=48, max_batch_size=8, kv_block_size=16)
    with discovery.registered(PLUGIN):
        report = build(tiny_checkpoint("gemma2"), tmp_path / "engine", config)
    assert report.fusions["softcap"] == 1
    assert report.calls["SoftCap"] == 1
    assert report.check is not None
    assert report.check.distance < 1e-4
    assert '#include "softcap_plugin/cpu/softcap.h"' in (tmp_path / "engine" / "cpu" / "engine.cpp").read_text()
    assert json.loads((tmp_path / "engine" / "report.json").read_text())["calls"]["SoftCap"] == 1
    assert "SoftCap" not in discovery.operations()


def test_an_installed_package_brings_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "softcap-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: softcap\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{discovery.ENTRY_POINTS}]\nsoftcap = {PLUGIN}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with discovery.registered("enginesmith.plugins.linear"):  # forgets what was found before
        operation = discovery.operations()["SoftCap"]
        x = np.array([-3.0, 0.0, 50.0])
        found = operation.reference(x, attributes=operation.parse({"cap": 5.0}))
        np.testing.assert_allclose(found, [5 * np.tanh(-0.6), 0, 5 * np.tanh(10)])
        assert next(kernel.operation for kernel in discovery.kernels("cpu")) == "SoftCap"


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twin_plugin").mkdir()
    (tmp_path / "twin_plugin" / "__init__.py").touch()
    (tmp_path / "twin_plugin" / "op.py").write_text("from softcap_plugin.op import OPERATIONS as OPERATIONS\n")
    monkeypatch.syspath_prepend(tmp_path)
    from enginesmith.errors import UnsupportedModelError

    with (
        discovery.registered(PLUGIN),
        discovery.registered("twin_plugin"),
        pytest.raises(UnsupportedModelError, match="twin_plugin defines SoftCap"),
    ):
        discovery.operations()
