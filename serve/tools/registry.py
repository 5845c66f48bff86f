"""The forms of calls by name, and which one a chat template teaches."""

import re

from .hermes import HermesParser
from .llama3 import Llama3Parser
from .mistral import MistralParser
from .parser import ToolParser
from .pythonic import PythonicParser

TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "hermes": HermesParser,
    "llama3": Llama3Parser,
    "mistral": MistralParser,
    "pythonic": PythonicParser,
}

# In this order: templates of Llama 3.2 that ask for lists of calls speak of JSON elsewhere.
_TRACES = {
    "pythonic": r"\[func_name1\(|<\|python_start\|>|<\|tool_(?:call|list)_start\|>",
    "mistral": r"\[TOOL_CALLS\]",
    "hermes": r"<tool_call>[^<]{0,40}\{\W{1,3}name",
    "llama3": r"\A(?!.*<function=).*(?:<\|python_tag\|>|\"parameters\": dictionary)",
}


def find_tool_parser(chat_template: str) -> str | None:
    """The name of the form that a template teaches; None where it teaches none of them."""
    return next((name for name, trace in _TRACES.items() if re.search(trace, chat_template, re.DOTALL)), None)
