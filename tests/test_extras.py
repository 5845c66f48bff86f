"""What errors advise to install is what was installed, with the extra."""

import importlib.metadata
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from enginesmith import extras
from enginesmith.extras import install_command

ROOT = Path(extras.__file__).parent


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """installed(origin): as if direct_url.json said that; None: there is none."""

    def say(origin: dict[str, Any] | None) -> None:
        class Distribution:
            def read_text(self, name: str) -> str | None:
                assert name == "direct_url.json"
                return None if origin is None else json.dumps(origin)

        class InTheClone(Distribution):
            def read_text(self, name: str) -> str | None:
                return None

        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: iter([InTheClone(), Distribution()]))

    return say


def test_from_a_folder(installed: Any) -> None:
    installed({"url": "file:///home/a%20b/es", "dir_info": {"editable": True}})
    assert shlex.split(install_command("serve")) == ["pip", "install", "-e", "/home/a b/es[serve]"]
    installed({"url": "file:///src/es", "dir_info": {}})
    assert shlex.split(install_command("serve")) == ["pip", "install", "/src/es[serve]"]


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        ({"url": "https://host/es-1.whl", "archive_info": {}}, "https://host/es-1.whl"),
        (
            {"url": "https://host/es.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "py"},
            "git+https://host/es.git@abc#subdirectory=py",
        ),
    ],
)
def test_from_an_address(installed: Any, origin: dict[str, Any], url: str) -> None:
    installed(origin)
    (*command, wanted) = shlex.split(install_command("serve"))
    requirement = Requirement(wanted)
    assert command == ["pip", "install"]
    assert (requirement.name, requirement.extras, requirement.url) == ("enginesmith", {"serve"}, url)


def test_from_an_index(installed: Any) -> None:
    installed(None)
    assert install_command("cuda-build") == "pip install 'enginesmith[cuda-build]'"


def test_a_clone_that_was_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: iter([]))
    assert shlex.split(install_command("serve")) == ["pip", "install", "-e", f"{ROOT}[serve]"]
