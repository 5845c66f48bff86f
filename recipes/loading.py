"""Finding, reading and overriding recipes; every mistake is named with its path and the nearest valid name."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from ..errors import RecipeError, shown
from .schema import Recipe
from .strict_yaml import read_yaml

_SHIPPED = Path(__file__).parent
_MOST_SHOWN, _MOST_LINES = 200, 15  # of what was given, of what is wrong


def shipped() -> list[str]:
    """Names of the recipes that come with enginesmith."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def load(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or file, with "build.max_batch_size=8" applied. Raises RecipeError."""
    path = _find(name_or_path)
    data = _read(path)
    for override in overrides:
        _apply(data, override)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        lines = [_explain(problem, data)[: 2 * _MOST_SHOWN] for problem in error.errors()[:_MOST_LINES]]
        raise RecipeError(f"recipe {path}:\n  " + "\n  ".join(lines)) from None
    # A path written in a recipe is relative to the recipe; one given on the command line, to the current folder.
    from_override = any(override.startswith("source") for override in overrides)
    return _absolute(recipe, Path.cwd() if from_override else path.parent)


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path).expanduser()
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path:
        if not path.is_file():
            raise RecipeError(f"recipe {path}: no such file")
        return path
    if name_or_path not in shipped():
        near = _nearest(name_or_path, shipped())
        raise RecipeError(
            f"no recipe is named {name_or_path!r}{near or '.'} There are {', '.join(shipped())}, or give a path"
        )
    return _SHIPPED / f"{name_or_path}.yaml"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RecipeError(f"recipe {path} cannot be read: {str(error)[: 2 * _MOST_SHOWN]}") from None
    if not isinstance(data, dict):
        raise RecipeError(f"recipe {path}: expected keys and values, found {type(data).__name__}")
    return data


def _apply(data: dict[str, Any], override: str) -> None:
    """Set one dotted key; the value is read as YAML, so that 8, true, null and [w1, w2] mean what they look like."""
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(
            f"--set {override[:_MOST_SHOWN]}: expected KEY=VALUE with a dotted key, such as build.max_batch_size=8"
        )
    try:
        value = read_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise RecipeError(
            f"--set {override[:_MOST_SHOWN]}: the value cannot be read: {str(error)[: 2 * _MOST_SHOWN]}"
        ) from None
    *parents, last = key.split(".")
    for parent in parents:
        inner = data.get(parent)
        if inner is None:
            inner = data[parent] = {}
        if not isinstance(inner, dict):
            raise RecipeError(
                f"--set {override[:_MOST_SHOWN]}: {shown(parent)} holds {shown(inner)}, which has no keys"
            )
        data = inner
    data[last] = value


def _explain(problem: Any, data: object) -> str:
    """One line on one pydantic problem."""
    location, message = ".".join(str(part) for part in problem["loc"]), problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        known = _keys_at(problem["loc"][:-1])
        near = _nearest(str(problem["loc"][-1]), known)
        return f"{location}: no such key{near or '; known are ' + ', '.join(known)}"
    if problem["type"] == "missing":
        return f"{location}: this key is required"
    found = "" if isinstance(problem["input"], dict) else f" (found {shown(problem['input'])})"
    return f"{location or 'recipe'}: {message}{found}"


def _nearest(name: str, known: Sequence[str]) -> str:
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def _keys_at(location: Sequence[object]) -> list[str]:
    """The keys that the schema allows below a path of keys, some of them places in a list."""
    model: Any = Recipe
    for key in (part for part in location if isinstance(part, str)):
        model = next(_models(model.model_fields[key].annotation))
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside a type such as `tuple[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _absolute(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with the files that it names as absolute paths."""
    updates: dict[str, Any] = {}
    if recipe.source.path is not None:
        updates["source"] = recipe.source.model_copy(update={"path": _beside(base, recipe.source.path)})
    if recipe.quantize is not None and (data := recipe.quantize.calibration) and (base / data).is_file():
        updates["quantize"] = recipe.quantize.model_copy(update={"calibration": _beside(base, data)})
    if recipe.quality is not None and recipe.quality.text is not None:
        updates["quality"] = recipe.quality.model_copy(update={"text": _beside(base, recipe.quality.text)})
    return recipe.model_copy(update=updates)


def _beside(base: Path, path: str) -> str:
    return str(base.resolve() / Path(path).expanduser())
