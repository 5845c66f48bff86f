"""The handler of `grammar_process.py`: turns what a request asks for into a grammar of llguidance, and tries that out.

Schemas and grammars are strangers' programs for a compiler. It has bounds of its own, but a stack that overflows or
memory that runs out would end the process that serves all: so each is compiled here first, where only this one ends.
It imports nothing of enginesmith, so that it starts fast.
"""

import json
import resource
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

_MAX_COMPLAINT = 500
_MAX_STACK = 4 << 20  # half of what the threads of the server have


def answer(
    kind: str, text: str, thinking: tuple[str, str, bool] | None, json_options: Any, limits: dict[str, Any]
) -> tuple[bool, str]:
    """Whether a GrammarSource compiles, and its grammar, or what ails it."""
    resource.setrlimit(resource.RLIMIT_STACK, (_MAX_STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    try:
        grammar = _grammar(kind, text, json_options)
        if thinking is not None:
            grammar = _after_thinking(grammar, *thinking)
        complaint = _complaint(grammar, LLParserLimits(**limits, verbose_errors=False))
    except RecursionError:
        return False, "it is nested too deeply"
    except MemoryError:
        return False, "it needs more memory than it may have"
    except Exception as error:  # the converters', on whatever they are given
        return False, (str(error) or type(error).__name__)[:_MAX_COMPLAINT]
    return (False, complaint[:_MAX_COMPLAINT]) if complaint else (True, grammar)


def _complaint(grammar: str, limits: LLParserLimits) -> str:
    """What ails a grammar. The library's check builds no lexer, which may be the dearest part by far (of `multipleOf`):
    so it is compiled, too, for a vocabulary of single bytes."""
    failed, complaints = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    return complaints[0] if failed else LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=limits).get_error()


def _grammar(kind: str, text: str, json_options: Any) -> str:
    if kind == "json":
        return LLMatcher.grammar_from_json_schema(text, overrides=json_options)
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    if kind == "choice":
        choices = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in json.loads(text))
        return LLMatcher.grammar_from_lark(f"start: {choices}")
    return LLMatcher.grammar_from_lark(any_to_lark(text))


def _after_thinking(grammar: str, start: str, end: str, opened: bool) -> str:
    """A grammar behind reasoning: up to `end` where the prompt `opened` it, else from `start` to `end` or none."""
    thought = "thought" if opened else f"({json.dumps(start)} thought)?"
    before = f"start: {thought} BLANKS? @answer\nthought[suffix={json.dumps(end)}]: /(?s:.*)/\nBLANKS: /\\s{{1,9}}/"
    inner = json.loads(grammar)["grammars"][0] if grammar.lstrip().startswith("{") else {"lark_grammar": grammar}
    return json.dumps({"grammars": [{"lark_grammar": before}, inner | {"name": "answer"}]})
