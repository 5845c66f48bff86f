"""What a recipe's steps have already done: a step whose inputs have not changed is not done again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..atomic import clear_abandoned, new_file
from ..builder.fingerprint import digest
from ..errors import RecipeError
from ..json_files import read_object


class Journal:
    """A small JSON file: for each step the digest of its inputs and what came of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        clear_abandoned(path.parent, path.name)
        self._steps: dict[str, dict[str, Any]] = _read(path)

    def once(
        self, step: str, inputs: object, do: Callable[[], Any], still_holds: Callable[[Any], bool] = lambda _: True
    ) -> tuple[Any, bool]:
        """The step's result, as JSON values, and whether it was there already.

        It is there when the step ended well with the same inputs and its result still holds.
        """
        key = digest(inputs)
        entry = self._steps.get(step)
        if entry is not None and entry.get("key") == key and still_holds(entry.get("result")):
            return entry["result"], True
        result = do()
        self._steps[step] = {"key": key, "result": result}
        with new_file(self._path) as work:
            work.write_text(json.dumps(self._steps, indent=2) + "\n", encoding="utf-8")
        return result, False


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """An absent or damaged journal is an empty one: at worst a step is done again."""
    try:
        data = read_object(path, RecipeError)
    except RecipeError:
        return {}
    return {key: value for key, value in data.items() if isinstance(value, dict)}
