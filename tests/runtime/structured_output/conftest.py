"""Grammars on the small tokenizers of the runtime's tests."""

from pathlib import Path

import pytest
from grammar_model import GrammarModel


@pytest.fixture(scope="session")
def byte_level(byte_level_tokenizer: Path) -> GrammarModel:
    return GrammarModel(byte_level_tokenizer, "<|end|>")


@pytest.fixture(scope="session")
def byte_fallback(byte_fallback_tokenizer: Path) -> GrammarModel:
    return GrammarModel(byte_fallback_tokenizer, "</s>")


@pytest.fixture(params=["byte_level", "byte_fallback"])
def model(request: pytest.FixtureRequest) -> GrammarModel:
    return request.getfixturevalue(request.param)
