"""Recipes with faults in them: a recipe, or RecipeError."""

from pathlib import Path

import mutations

from enginesmith.recipes.loading import load, shipped

SHIPPED = Path(load.__code__.co_filename).parent


def test_recipes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    texts = [(SHIPPED / f"{name}.yaml").read_text() for name in shipped()]
    for rng in mutations.generators("recipe"):
        text = mutations.mutated_text(rng, rng.choice(texts))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        mutations.attempt(lambda: load(str(path)), text)


def test_overrides() -> None:
    keys = [
        "build.max_seq_len",
        "build.weights",
        "demo.prompt",
        "source",
        "name",
        "bench.workloads",
        "quantize",
        "a.b.c",
    ]
    for rng in mutations.generators("overrides"):
        key = mutations.mutated_text(rng, rng.choice(keys)) if rng.random() < 0.3 else rng.choice(keys)
        override = f"{key}={mutations.mutated_text(rng, str(mutations.odd_value(rng, json_only=True)))}"
        mutations.attempt(lambda: load("smollm2-135m", [override]), override)  # noqa: B023
