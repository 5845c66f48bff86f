"""YAML in which no key may come twice: a plain reader keeps the last of them and says nothing."""

from typing import Any

import yaml
from yaml.constructor import ConstructorError


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
    """The plain values of one document. Raises yaml.YAMLError, naming key and lines where a key comes twice."""
    return yaml.load(text, _Loader)
