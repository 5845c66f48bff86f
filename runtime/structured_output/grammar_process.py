"""The process that tries grammars out, as its parent sees it."""

from pathlib import Path
from typing import Any

from ...errors import ParameterError, reason
from ...units import shown_size
from ..sandbox_process import Ended, Refused, SandboxProcess, packed
from .json_options import JSON_OPTIONS
from .params import GrammarSource

_OPTION = "Enable 'coerce_one_of' option to approximate oneOf with anyOf"  # which requests do not have

MAX_SECONDS = 5.0
MAX_MEMORY = 256 << 20

LIMITS: dict[str, Any] = {"max_lexer_states": 50_000, "max_grammar_size": 200_000}
"""Bounds of llguidance's that are below its own: 100 MB a sequence at most, a second of compiling."""


class GrammarProcess(SandboxProcess):
    """One child for all grammars."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("grammar_sandbox.py"), MAX_MEMORY)

    def grammar(self, source: GrammarSource) -> str:
        """A grammar of llguidance, which compiles within LIMITS. Raises ParameterError for one that does not."""
        name = f"structured_outputs.{source.kind}"
        try:
            thinking = source.thinking and tuple(source.thinking)
            return self.ask(packed((source.kind, source.text, thinking, JSON_OPTIONS, LIMITS), MAX_SECONDS))
        except Refused as refused:
            complaint = reason(refused).replace(_OPTION, "Use anyOf")
            raise ParameterError(name, f"cannot be compiled: {complaint}") from None
        except Ended as ended:
            if ended.out_of_time:
                raise ParameterError(name, f"takes more than {MAX_SECONDS:g} seconds to compile: simplify it") from None
            raise ParameterError(
                name,
                f"ended the process that compiled it ({ended}), which may have {shown_size(MAX_MEMORY)}: simplify it",
            ) from None


grammar_process = GrammarProcess()
