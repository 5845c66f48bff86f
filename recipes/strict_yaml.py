"""YAML in which no key may come twice: a plain reader keeps the last of them and says nothing."""

from typing import Any

import yaml
from yaml.constructor import ConstructorError

_MOST_CHARACTERS, _MOST_BRACKETS = 1 << 18, 500


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise ConstructorError(
                    problem=f"line {line}: the key {key.value!r} is given twice, first in line {lines[key.value]}; "
                    "keep one of them"
                )
            lines[key.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """The plain values of one document. Raises yaml.YAMLError, naming key and lines where a key comes twice, and
    ValueError for one past any recipe: the parser takes a time that grows with the square of open brackets."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, the limit is {_MOST_CHARACTERS}")
    if (brackets := text.count("[") + text.count("{")) > _MOST_BRACKETS:
        raise ValueError(f"it has {brackets} opening brackets, the limit is {_MOST_BRACKETS}")
    return yaml.load(text, _Loader)
