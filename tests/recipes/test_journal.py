"""A step is done once for the same inputs, as long as what it left is there."""

from pathlib import Path

import pytest

from enginesmith.builder import fingerprint
from enginesmith.builder.fingerprint import code_digest, stamp
from enginesmith.recipes.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.json"


def test_the_same_inputs_are_not_done_again(path: Path) -> None:
    done: list[int] = []
    skipped = False
    for _ in range(2):
        result, skipped = Journal(path).once("a", {"x": 1}, lambda: done.append(1) or "result")
        assert result == "result"
    assert skipped
    assert done == [1]


def test_other_inputs_another_step_and_a_result_that_is_gone_are(path: Path) -> None:
    journal = Journal(path)
    journal.once("a", 1, lambda: "old")
    assert journal.once("a", 2, lambda: "new") == ("new", False)
    assert journal.once("b", 2, lambda: "b") == ("b", False)
    assert journal.once("a", 2, lambda: "again", lambda result: result != "new") == ("again", False)
    assert journal.once("a", 2, lambda: "never") == ("again", True)


def test_a_failed_step_is_not_recorded_and_those_before_it_are(path: Path) -> None:
    journal = Journal(path)
    journal.once("a", 1, lambda: "a")
    with pytest.raises(KeyboardInterrupt):
        journal.once("b", 1, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    later = Journal(path)
    assert later.once("a", 1, lambda: "never") == ("a", True)
    assert later.once("b", 1, lambda: "b") == ("b", False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": {}}'])
def test_a_damaged_journal_is_an_empty_one(path: Path, text: str) -> None:
    path.write_text(text)
    assert Journal(path).once("a", 1, lambda: "done") == ("done", False)


def test_stamps_and_digests_see_changes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "f").write_text("ab")
    assert stamp(tmp_path) != before
    assert stamp(tmp_path / "f") == stamp(tmp_path)


def test_the_digest_of_our_source_sees_every_package_and_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: tests may change."""
    for folder in ("runtime", "runtime/batcher", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runtime" / "__init__.py").touch()
    monkeypatch.setattr(fingerprint, "_PACKAGE", tmp_path)
    before = code_digest.__wrapped__()
    (tmp_path / "tests" / "test.py").write_text("x = 1")
    assert code_digest.__wrapped__() == before
    for name in ("errors.py", "runtime/batcher/scheduler.py", "runtime/abi.h"):
        (tmp_path / name).write_text("x = 1")
        assert code_digest.__wrapped__() != before
        before = code_digest.__wrapped__()
    monkeypatch.setattr(fingerprint, "plugins", tuple)
    assert code_digest.__wrapped__() != before
