"""`inspect` of a report with faults in it."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import mutations
import pytest

from enginesmith.builder.report import BuildReport, CheckResult, Tactic
from enginesmith.cli import inspect
from enginesmith.cli.terminal import prepare

REPORT = BuildReport(
    checkpoint="in",
    engine="out",
    architecture="LlamaForCausalLM",
    target="cpu avx2",
    compiler="g++ 13",
    seconds={"trace": 1.5},
    fusions={"norms": 5},
    calls={"Linear": 4},
    tactics=[Tactic("layers.0", "int8", {"1-": "VPDPBUSD"})],
    quantized="awq",
    dequantized={"lm_head": "no kernel takes it"},
    quantization={"method": "awq", "layers": [1], "scheme": "int4", "logits": {"kl": 0.1, "top1": 0.9}},
    check=CheckResult(3, 0.1, 0.2, 0.3, 0.9, 1.0, 1.0),
)


def test_reports(engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are looked into whatever their digest: it is the engine that is not run."""
    prepare()
    folder = tmp_path / "e.engine"
    folder.mkdir()
    manifest = json.loads((engine / "engine.json").read_text())
    sizes = {name: manifest["files"][name] for name in ("weights.bin", "report.json", manifest["target"]["library"])}
    for name in sizes:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes((engine / name).read_bytes())
    original = json.dumps(asdict(REPORT)).encode()
    for rng in mutations.generators("report.json"):
        data = mutations.mutated_json(rng, original)
        sizes["report.json"]["bytes"] = len(data)
        (folder / "engine.json").write_text(json.dumps(manifest | {"files": sizes}))
        (folder / "report.json").write_bytes(data)
        flags = rng.choice([[], ["--json"], ["--tactics"]])
        mutations.attempt(lambda: inspect.command.main([str(folder), *flags], standalone_mode=False), data)  # noqa: B023
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", capsys.readouterr().out), data
