"""The one table of operations: what tracing emits is what it holds, and what every target lowers."""

import ast
from pathlib import Path

import onnx

from enginesmith.builder import trace
from enginesmith.builder.lowering import lower  # noqa: F401  (its imports fill STANDARD)
from enginesmith.builder.lowering.kernels import STANDARD, Kernels
from enginesmith.builder.network_page import page
from enginesmith.builder.operations import all_operations, standard_operations
from enginesmith.builder.targets.options import TARGETS
from enginesmith.plugins.discovery import kernels, operations, plugins
from enginesmith.plugins.plugin import DOMAIN

ROOT = Path(__file__).parents[2]


def _texts(folder: Path) -> set[str]:
    """Every text that the modules of a folder hold."""
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    constants = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {node.value for node in constants if isinstance(node.value, str)}


def _standard(texts: set[str]) -> set[str]:
    """Those that are names of standard operations, and not of a plugin's."""
    return {text for text in texts if text[:1].isupper() and onnx.defs.has(text)} - set(operations())


def test_the_table_holds_the_standard_operations_that_tracing_emits_and_no_others():
    assert _standard(_texts(Path(trace.__path__[0]))) == set(standard_operations())


def test_plugins_say_which_of_their_operations_tracing_emits():
    functions = (_texts(plugin.folder) for plugin in plugins() if (plugin.folder / "trace.py").is_file())
    traced = _texts(ROOT / "builder" / "trace").union(*functions)
    made = _texts(ROOT / "builder" / "passes")
    for name, operation in operations().items():
        assert (name in traced) == operation.is_traced, name
        assert operation.is_traced or name in made, f"nothing makes {name}"


def test_every_target_lowers_every_operation_and_no_others():
    recurrences = {(DOMAIN, name) for name, operation in operations().items() if operation.state is not None}
    for target in TARGETS:
        lacks = recurrences if target == "cuda" else set()
        assert Kernels([*kernels(target), *STANDARD]).operations == all_operations() - lacks, target


def test_passes_make_only_operations_of_the_table():
    assert _standard(_texts(ROOT / "builder" / "passes")) <= set(standard_operations())


def test_the_page_is_current():
    assert (ROOT / "docs" / "network.md").read_text() == page(), "run python -m enginesmith.builder.network_page"
