"""Compiled grammars are kept, within bounds; what is missing is told."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from char_tokenizer import write_char_tokenizer
from grammar_model import VOCAB, GrammarModel

from enginesmith.errors import ParameterError, RequestError
from enginesmith.extras import install_command
from enginesmith.runtime.structured_output import compiler as module
from enginesmith.runtime.structured_output.compiler import GrammarCompiler
from enginesmith.runtime.structured_output.grammar_process import grammar_process
from enginesmith.runtime.structured_output.params import StructuredOutputsParams
from enginesmith.runtime.tokenizer import NoTokenizer


def _regex(pattern: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(regex=pattern)


def test_what_was_compiled_is_kept(byte_level: GrammarModel, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, asked, grammar = byte_level.compiler, [], grammar_process.grammar

    def count(source: Any) -> str:
        asked.append(source.text)
        return grammar(source)

    monkeypatch.setattr(grammar_process, "grammar", count)
    monkeypatch.setattr(module, "_MAX_KEPT", 2)
    for pattern in ["a1", "a2", "a1", "a3", "a1", "a2"]:
        compiler.compile(_regex(pattern))
    assert asked == ["a1", "a2", "a3", "a2"]
    monkeypatch.setattr(module, "_MAX_KEPT_BYTES", 3)
    for pattern in ["b1", "b2", "b1"]:
        compiler.compile(_regex(pattern))
    assert asked[4:] == ["b1", "b2", "b1"]
    monkeypatch.undo()
    monkeypatch.setattr(grammar_process, "grammar", count)
    monkeypatch.setattr(module, "_MAX_KEPT_SECONDS", 0.0)
    for pattern in ["c1", "c1", "c2", "c1"]:
        compiler.compile(_regex(pattern))
    assert asked[7:] == ["c1", "c2", "c1"]


def test_threads_share_it(byte_level: GrammarModel) -> None:
    def accepts(number: int) -> bool:
        new = byte_level.compiler.compile(_regex(f"a{{{number % 7}}}b"))
        return byte_level.accepts(new(), "a" * (number % 7) + "b")

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(accepts, range(100)))


def test_an_error_is_not_kept(byte_level: GrammarModel) -> None:
    for _ in range(2):
        with pytest.raises(ParameterError, match=r"structured_outputs\.regex: cannot be compiled: .*unclosed group"):
            byte_level.compiler.compile(_regex("("))


def test_without_the_library(byte_level: GrammarModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    compiler = GrammarCompiler(byte_level.tokenizer, VOCAB, {byte_level.eos})
    advice = re.escape(install_command("structured"))
    with pytest.raises(RequestError, match=f"needs the package llguidance, .*{advice}"):
        compiler.compile(_regex("a"))


@pytest.mark.parametrize(
    ("tokenizer", "eos", "message"),
    [(NoTokenizer(), {0}, "this engine has no tokenizer"), (None, set(), "this model has no end-of-sequence token")],
)
def test_engines_whose_outputs_cannot_be_constrained(
    byte_level: GrammarModel, tokenizer: NoTokenizer | None, eos: set[int], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        GrammarCompiler(tokenizer or byte_level.tokenizer, VOCAB, eos).compile(_regex("a"))


def test_a_vocabulary_that_cannot_spell_it(tmp_path: Path) -> None:
    """Here a line break: the output is refused where it must come, and no other token is put in its place."""
    write_char_tokenizer(tmp_path)
    model = GrammarModel(tmp_path, "</s>")
    constraint = model.compiler.compile(_regex("ab\ncd"))()
    for text in (b"a", b"b"):
        (token,) = model.allowed(constraint)
        assert model.bytes[token] == text
        constraint.accept(int(token))
    with pytest.raises(RequestError, match="no token of this model's spells what the grammar asks for next"):
        constraint.mask()


def test_a_tokenizer_with_more_tokens_than_the_model(byte_level: GrammarModel) -> None:
    """Here those of control characters, one of which helps to find how a text is spelt behind another."""
    size = 150
    assert all(token >= size for token in byte_level.tokenizer.encode("\x02", add_special_tokens=False))
    compiler = GrammarCompiler(byte_level.tokenizer, size, {byte_level.eos})
    constraint = compiler.compile(_regex("(the|quick)+"))()
    for byte in b"quick":
        constraint.mask()
        constraint.accept(byte_level.bytes.index(bytes([byte])))
    assert constraint.mask()
