"""docs/models.md, written of families.json and full_size.json."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "builder" / "families.json"
FULL_SIZE = RESULTS.with_name("full_size.json")
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
Results = dict[str, dict[str, Any]]

_HEAD = """\
# Models

enginesmith has no list of models that it builds: it traces a checkpoint's own Transformers class. This page, written by
`python tests/builder/families.py`, tells what becomes of {entries} of the 195 model types that
Transformers 5.24 has as causal language models (MODEL_FOR_CAUSAL_LM_MAPPING): {counts}.

Each is a tiny random float32 checkpoint, compared with Transformers:

- as an **engine**: logits of prompts whole, in chunks, token by token and beside others; 32 greedy tokens of
  `generate`; the tokens of requests that were preempted. Bits must not depend on chunks or company.
- as a **network** (`--how network`): logits of packed prompts, computed by NumPy from the traced and fused network that
  engines are compiled of.

No logit may be further off than 1e-4 of the logits' spread.

## Those that agree

"Furthest" is the furthest logit, as a share of the spread. {quantized}

"""
_QUANTIZED = """"int8" is the mean KL divergence in nats of an engine with
int8 weights and an int8 KV cache (`--how quantized`), held to the bars of a build's own check."""
_FULL_SIZE = """
## At full size

Configurations as published, traced, fused and lowered without weights (`python tests/builder/full_size.py`): seconds of
one core, and the peak memory of the process, libraries included.

"""


def read(path: Path = RESULTS) -> Results:
    return json.loads(path.read_text()) if path.exists() else {}


def page(results: Results) -> str:
    """The whole page."""
    agree, refused = _with("agrees", results), _with("refused", results)
    others = {name: result for name, result in results.items() if name not in agree | refused}
    counts = f"{len(agree)} agree, {len(refused)} are refused" + (f", {len(others)} are neither" if others else "")
    tried = any("quantized" in result for result in agree.values())
    text = _HEAD.format(entries=len(results), counts=counts, quantized=_QUANTIZED if tried else "").replace(" \n", "\n")
    columns = ("model_type", "class", "as", "KV cache", "furthest", *(["int8"] if tried else []))
    text += _table(columns, (_agreeing(*entry)[: len(columns)] for entry in agree.items()))
    noted = [f"{name} ({', '.join(result['notes'])})" for name, result in agree.items() if result["notes"]]
    if noted:
        text += f"\nTransformers answers otherwise with its cache than without for {', '.join(noted)}.\n"
    reasons = ((f"`{name}`", _line(result["reason"])) for name, result in refused.items())
    text += "\n## Those that are refused\n\n" + _table(("model_type", "why"), reasons)
    if others:
        reasons = ((f"`{name}`", _line(f"{each['outcome']}: {each['reason']}")) for name, each in others.items())
        text += "\n## Neither\n\n" + _table(("model_type", "what happened"), reasons)
    return text + _full_size(read(FULL_SIZE))


def _with(outcome: str, results: Results) -> Results:
    return {name: result for name, result in results.items() if result["outcome"] == outcome}


def _agreeing(name: str, result: dict[str, Any]) -> Sequence[object]:
    tried = result.get("quantized", {})
    quantized = f"{tried['kl']:.1e}" if tried.get("outcome") == "agrees" else _line(tried.get("reason", ""))
    caches = ", ".join(result["cache"])
    return f"`{name}`", result["class"], result["how"], caches, f"{result['distance']:.1e}", quantized


def _full_size(results: Results) -> str:
    if not results:
        return ""
    columns = ("parameters", "layers", "operations", "seconds", "memory")
    rows = ((name, *(result[column] for column in columns)) for name, result in results.items())
    return _FULL_SIZE + _table(("model", *columns), rows)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
