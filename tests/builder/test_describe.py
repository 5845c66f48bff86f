"""What an engine is called where nobody says."""

from pathlib import Path

import pytest

from enginesmith.builder.describe import model_name
from enginesmith.checkpoint.checkpoint import Checkpoint

HASH = "12fd25f77366fa6b3b4b768ec3050bf629380bac"


@pytest.mark.parametrize(
    ("folder", "config", "name"),
    [
        (f"hub/models--org--a-model/snapshots/{HASH}", {}, "org/a-model"),
        (f"hub/models--org--a-model/snapshots/{HASH}", {"_name_or_path": "org/given"}, "org/given"),
        (f"hub/models--gpt2/snapshots/{HASH}", {"_name_or_path": "/home/someone/model"}, "gpt2"),
        (f"snapshots/{HASH}", {}, HASH),
        ("models/mine", {}, "mine"),
    ],
)
def test_the_name_of_a_model(tmp_path: Path, folder: str, config: dict[str, str], name: str) -> None:
    assert model_name(Checkpoint(tmp_path / folder, config, {}, {})) == name
