"""The rules of docs/architecture.md that no compiler holds: who imports whom, how large files are, what is packaged."""

import ast
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 500

# Each folder may import those named with it, and the modules at the root that know nothing of the rest.
ALLOWED = {
    "cli": {"recipes", "builder", "measure", "serve", "runtime", "quantization", "checkpoint", "plugins"},
    "recipes": {"builder", "measure", "serve", "runtime", "quantization", "checkpoint", "plugins"},
    "builder": {"measure", "serve", "runtime", "quantization", "checkpoint", "plugins"},
    "measure": {"serve", "runtime", "quantization", "checkpoint", "plugins"},
    "serve": {"runtime"},
    "runtime": {"quantization", "checkpoint", "plugins"},
    "quantization": {"checkpoint", "plugins"},
    "plugins": set(),
    "checkpoint": set(),
}
GROUND = {"errors", "units", "blame", "progress", "json_files", "signals", "exchange", "atomic"}
GROUND |= {"cache", "checked_options", "extras", "integrity", "kept"}
# What a packer is given, and a checkpoint may hold: a weight's scheme, and integers. Plain data, which all may know.
DEFINITIONS = (("quantization", "scheme"), ("quantization", "quantized"))
HEAVY = {
    "torch",
    "transformers",
    "onnx",
    "onnx_ir",
    "safetensors",
    "ml_dtypes",
    "gguf",
    "huggingface_hub",
    "sentencepiece",
    "triton",
}
MAY_IMPORT_HEAVY = {"builder": HEAVY, "checkpoint": HEAVY - {"triton"}, "quantization": {"ml_dtypes"}}


def _modules() -> list[Path]:
    return sorted(path for folder in ALLOWED for path in (ROOT / folder).rglob("*.py"))


def _tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _imports(path: Path) -> tuple[tuple[str, ...], ...]:
    return tuple(_read_imports(path))


def _read_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The dotted target of each import in a file, as parts; inside the package "." instead of its name."""
    here = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _inside(tuple(alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            if node.level == 0:
                yield _inside(module)
                continue
            base = here[: len(here) - (node.level - 1)] + module
            for alias in node.names:
                yield (".", *base, alias.name)


def _inside(parts: tuple[str, ...]) -> tuple[str, ...]:
    return (".", *parts[1:]) if parts[0] == "enginesmith" else parts


def _may_import(module: tuple[str, ...], target: tuple[str, ...]) -> bool:
    """Both inside the package. A plugin's lower.py lies higher than the plugin, above lowering; its folder for a target
    lies above lower.py, below the target itself; its trace.py lies above the tracer, which finds it by name.
    """
    folder, plugin_target = module[0], _target_of_plugin(module)
    is_above_lowering = plugin_target is not None or _lowers_for_all_targets(module)
    if _is_traced(module) and target[:2] == ("builder", "trace"):
        return True
    if target[0] == "plugins" and target[2:3] == ("lower",):
        return is_above_lowering
    if is_above_lowering and target[0] == "builder":
        of_target = target[1:4] == ("targets", plugin_target, "source")
        return of_target or target[1] in {"lowering", "passes"}
    if is_above_lowering and target[0] in {"runtime", "quantization"}:
        return True
    if folder in {"plugins", "checkpoint"} and target[:2] in DEFINITIONS:
        return True
    return target[0] in {folder, "__version__"} | GROUND | ALLOWED[folder]


def _target_of_plugin(module: tuple[str, ...]) -> str | None:
    """The target, of a module of a plugin's folder for one: plugins/NAME/TARGET/..."""
    return module[2] if module[0] == "plugins" and len(module) > 3 else None


def _lowers_for_all_targets(module: tuple[str, ...]) -> bool:
    """Whether a module is plugins/NAME/lower.py."""
    return module[0] == "plugins" and module[2:] == ("lower.py",)


def _is_traced(module: tuple[str, ...]) -> bool:
    """Whether a module is plugins/NAME/trace.py."""
    return module[0] == "plugins" and module[2:] == ("trace.py",)


def test_imports_run_one_way() -> None:
    wrong = []
    for path in _modules():
        module = path.relative_to(ROOT).parts
        inside = [target[1:] for target in _imports(path) if target[0] == "."]
        wrong += [f"{_relative(path)}: {'.'.join(target)}" for target in inside if not _may_import(module, target)]
    assert not wrong


def _is_of_the_cpu(module: tuple[str, ...]) -> bool:
    """Whether a dotted path lies in the parts that know the CPU target."""
    path = ".".join(module) + "."
    return bool(re.match(r"builder\.targets\.cpu\.|plugins\.(\w+\.)?cpu\.|runtime\.executors\.cpu", path))


def test_only_the_cpu_target_imports_what_is_of_the_cpu() -> None:
    """But for the sampler's library, which runs on the CPU whatever the target."""
    wrong = []
    for path in _modules():
        if _is_of_the_cpu(path.relative_to(ROOT).with_suffix("").parts) or path == ROOT / "builder/targets/sampler.py":
            continue
        inside = [target[1:] for target in _imports(path) if target[0] == "."]
        wrong += [f"{_relative(path)}: {'.'.join(target)}" for target in inside if _is_of_the_cpu(target)]
    assert not wrong


def test_no_imports_run_in_a_circle() -> None:
    modules = {path.relative_to(ROOT).with_suffix("").parts: path for path in _modules()}
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, path in modules.items():
        inside = [target[1:] for target in _imports(path) if target[0] == "."]
        graph[module] = {found for target in inside for found in (target, target[:-1]) if found in modules}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
    folders = {path.parent.relative_to(ROOT).parts for path in _modules()}
    innermost = {folder for folder in folders if not any(other[:-1] == folder for other in folders)}

    def home(module: tuple[str, ...]) -> tuple[str, ...]:
        """The folder of a module, if it holds modules alone; else the module itself."""
        return module[:-1] if module[:-1] in innermost else module

    between: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, targets in graph.items():
        between.setdefault(home(module), set()).update({home(target) for target in targets} - {home(module)})
    TopologicalSorter(between).prepare()


def test_heavy_libraries_stay_in_the_builder_and_the_checkpoint() -> None:
    wrong = {}
    for path in _modules():
        module = path.relative_to(ROOT).parts
        is_above = _target_of_plugin(module) is not None or _lowers_for_all_targets(module) or _is_traced(module)
        folder = "builder" if is_above or module[:2] == ("plugins", "cuda") else module[0]
        if found := {target[0] for target in _imports(path)} & HEAVY - MAY_IMPORT_HEAVY.get(folder, set()):
            wrong[_relative(path)] = found
    assert not wrong


@pytest.mark.parametrize("definition", DEFINITIONS, ids=".".join)
def test_definitions_that_all_may_know_stand_alone(definition: tuple[str, str]) -> None:
    path = ROOT.joinpath(*definition).with_suffix(".py")
    assert not [target for target in _imports(path) if target[0] == "."]


@pytest.mark.parametrize("module", ["runtime.llm", "cli.main", "cli.run"])
def test_running_loads_no_builder_library(module: str) -> None:
    code = f"import sys, enginesmith.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {name.partition(".")[0] for name in loaded} & HEAVY
    assert not heavy
    assert not [name for name in loaded if name.startswith("enginesmith.builder")]


def test_a_run_starts_with_what_it_needs() -> None:
    modules = "enginesmith.cli.run, enginesmith.runtime.llm, enginesmith.runtime.executors.cpu_backend"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    waits = {"numpy", "pydantic", "jinja2", "rich", "yaml", "secrets", "subprocess", "asyncio", "multiprocessing"}
    assert not waits & set(loaded)
    assert {name for name in loaded if name.startswith("enginesmith.checkpoint.")} == {
        "enginesmith.checkpoint.tokenizers_library"
    }


def test_importing_enginesmith_costs_nothing() -> None:
    def best(code: str) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best("import enginesmith") - best("pass") < 0.05


def test_no_file_is_long() -> None:
    sources = [path for path in _tracked() if path.suffix in {".py", ".h", ".cpp"}]
    lengths = {_relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    assert not {name: length for name, length in lengths.items() if length > MAX_LINES}


def test_every_package_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(ROOT) for path in _modules() if path.name == "__init__.py"}
    assert listed == {"enginesmith"} | {".".join(("enginesmith", *folder.parts)) for folder in folders}


def test_every_header_and_recipe_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["enginesmith"]
    packaged = {path for pattern in patterns for path in ROOT.glob(pattern)}
    needed = {
        path for folder in ALLOWED for path in (ROOT / folder).rglob("*") if path.suffix in {".h", ".cpp", ".yaml"}
    }
    assert needed <= packaged


def test_every_folder_of_modules_is_a_package() -> None:
    for path in _modules():
        assert (path.parent / "__init__.py").is_file(), f"{path.parent} has no __init__.py"


def test_only_extras_says_how_extras_are_installed() -> None:
    said = re.compile(r"pip install '?enginesmith")
    assert [path for path in _modules() if said.search(path.read_text())] == []
