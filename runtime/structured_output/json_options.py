"""How llguidance is told to read a JSON Schema."""

from typing import Any

JSON_OPTIONS: dict[str, Any] = {
    "whitespace_pattern": r" |\n[ \t]{0,40}",  # indented, but no blanks for ever, which models fall into
    "lenient": False,  # keywords that would be ignored are errors
    "coerce_one_of": False,
}
