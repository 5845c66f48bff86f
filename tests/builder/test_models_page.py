"""docs/models.md, and a sample of the models it tells of: each tiny and random, against Transformers.

ENGINESMITH_FAMILIES=all compiles an engine of every entry, which takes the better part of an hour.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from model_checks import NoTinyModelError, check_engine, check_network
from models_page import PAGE, page, read
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from enginesmith.errors import EnginesmithError

RESULTS = read()
# What the tiny models of other tests lack: positions and masks of a model's own, ways to share keys, scale and route.
SAMPLE = [
    "exaone4", "falcon", "gemma4_text", "longcat_flash", "openai-gpt", "phimoe", "roformer", "sarvam_mla", "trocr",
]  # fmt: skip


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_fused_network_gives_the_logits_of_transformers(model_type: str, tmp_path: Path):
    result = check_network(model_type, tmp_path)
    assert result["outcome"] == "agrees", result
    assert result["spread"] > 1, "these logits could not tell a wrong network from a right one"


def test_the_page_is_written_of_the_results():
    assert PAGE.read_text() == page(RESULTS), "run python tests/builder/families.py llama"


def test_no_entry_is_wrong():
    assert {result["outcome"] for result in RESULTS.values()} <= {"agrees", "refused", "no tiny model"}
    assert set(RESULTS) <= {kind.model_type for kind in MODEL_FOR_CAUSAL_LM_MAPPING}


@pytest.mark.parametrize("model_type", RESULTS if os.environ.get("ENGINESMITH_FAMILIES") == "all" else [])
def test_an_engine_of_every_entry(model_type: str, tmp_path: Path, quick_compiler: Any):
    expected = RESULTS[model_type]["outcome"]
    try:
        found = check_engine(model_type, tmp_path)["outcome"]
    except (EnginesmithError, NoTinyModelError) as error:
        found = "refused" if isinstance(error, EnginesmithError) else "no tiny model"
    assert found == expected
