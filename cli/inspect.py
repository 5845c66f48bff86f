"""`enginesmith inspect`: what an engine is, needs, and was made of."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..errors import EngineError
from ..runtime.engine_dir import BUILD_REPORT, EngineDir, open_engine, read_report
from ..runtime.executors.registry import backend_of
from ..runtime.kv_cache.sizing import blocks_for
from ..runtime.manifest import Manifest
from ..units import shown_size
from .show import check_facts, quantization_facts, section
from .terminal import write_json


@click.command("inspect")
@click.argument("engine", type=click.Path(path_type=Path))
@click.option("--tactics", is_flag=True, help="List the kernel of every node instead of counting kernels.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(engine: Path, tactics: bool, as_json: bool) -> None:
    """Show what is in ENGINE, what was fused, its memory, limits and tactics."""
    folder = open_engine(engine, verify=False, any_machine=True)
    report = read_report(engine)
    with _readable(engine / BUILD_REPORT):
        _show(folder, report, tactics=tactics, as_json=as_json)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A report of another form, or changed by hand: KeyError and the like, wherever that is noticed."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"
        raise EngineError(f"{path}: not the report of a build: {found}; rebuild the engine") from None


def _show(folder: EngineDir, report: dict[str, Any], *, tactics: bool, as_json: bool) -> None:
    memory = _memory(folder, report)
    if as_json:
        write_json({"manifest": folder.manifest.to_json(), "memory": memory, "report": report}, indent=2)
        return
    _show_manifest(folder, memory)
    _show_report(report, tactics)


def _memory(folder: EngineDir, report: dict[str, Any]) -> dict[str, int]:
    """Bytes: of weights, embedding tables among them, of activations, of KV cache a token and for full sequences."""
    limits, kv = folder.manifest.limits, folder.manifest.kv_cache
    one = sum(
        blocks_for(group, kv.block_size, limits.max_seq_len, limits.max_num_tokens) * group.bytes_per_block
        for group in kv.groups
    )
    return {
        "weights": folder.manifest.target.weights_bytes,
        "embedding_tables": report.get("table_bytes", 0),
        "activations": report.get("arena_bytes", 0),
        "kv_per_token": sum(group.bytes_per_block for group in kv.groups) // kv.block_size,
        "kv_one_sequence": one,
        "kv_at_limits": one * limits.max_batch_size,
        "states_one_sequence": folder.manifest.state.slot_bytes,
        "states_at_limits": folder.manifest.state.slot_bytes * limits.max_batch_size,
    }


def _show_manifest(folder: EngineDir, memory: dict[str, int]) -> None:
    manifest = folder.manifest
    model, limits, target = manifest.model, manifest.limits, manifest.target
    layers = ", ".join(f"{count} x {scheme}" for scheme, count in manifest.quantization.linear_layers.items())
    section(
        "Model",
        {
            "name": model.name,
            "architecture": f"{model.architecture}, {model.num_layers} layers, vocabulary {model.vocab_size}",
            "parameters": f"{model.num_parameters / 1e6:.0f} million",
            "linear layers": f"{layers} ({manifest.quantization.scheme})",
            "end of sequence": ", ".join(map(str, model.eos_token_ids)) or "none",
        },
    )
    section(
        "Limits",
        {
            "max_batch_size": f"{limits.max_batch_size} requests at once",
            "max_num_tokens": f"{limits.max_num_tokens} tokens a step",
            "max_seq_len": f"{limits.max_seq_len} tokens of prompt and output",
        },
    )
    section(
        "Memory",
        {
            "weights": f"{shown_size(memory['weights'])}, {shown_size(memory['embedding_tables'])} of it embedding "
            "tables, mapped from the file",
            "activations": shown_size(memory["activations"]),
            **_cache(manifest, memory),
        },
    )
    section(
        "Target",
        {
            "name": target.name,
            **backend_of(target.name).describe(target),
            "built by": f"enginesmith {manifest.builder_version}, format {manifest.format_version}",
            "size": shown_size(sum(entry.bytes for entry in manifest.files.values())),
        },
    )


def _cache(manifest: Manifest, memory: dict[str, int]) -> dict[str, str]:
    """What sequences take, in the KV cache and as states."""
    found = {}
    if manifest.kv_cache.groups:
        found["KV cache"] = (
            f"{shown_size(memory['kv_per_token'])} a token, {shown_size(memory['kv_one_sequence'])} a full "
            f"sequence, {shown_size(memory['kv_at_limits'])} at the limits ({manifest.kv_cache.dtype}, "
            f"blocks of {manifest.kv_cache.block_size})"
        )
    if manifest.state.states:
        operations = Counter(state.operation for state in manifest.state.states)
        found["states"] = (
            f"{shown_size(memory['states_one_sequence'])} a sequence, {shown_size(memory['states_at_limits'])} at the "
            f"limits, of {', '.join(f'{count} x {name}' for name, count in operations.items())}; prompts share nothing"
        )
    return found


def _tactic(tactic: dict[str, Any]) -> str:
    variants = (f"{rows} rows {variant}" for rows, variant in tactic["variants"].items())
    return f"{tactic['kernel']}: {'; '.join(variants)}"


def _show_report(report: dict[str, Any], tactics: bool) -> None:
    if report.get("quantized"):
        reasons = Counter(report["dequantized"].values())
        dequantized = {reason: f"{count} linear layers dequantized" for reason, count in reasons.items()}
        section("Quantized by the checkpoint", {"layout": report["quantized"], **dequantized})
    section("Notes of the build", {str(i): note for i, note in enumerate(report.get("notes", ()), 1)})
    if report.get("quantization"):
        section("Quantized first", quantization_facts(report["quantization"]))
    section("Fused", {name: str(count) for name, count in report["fusions"].items() if count})
    section("Kernel calls a step", {name: str(count) for name, count in report["calls"].items()})
    if tactics:
        section("Tactics", {t["node"]: _tactic(t) for t in report["tactics"]})
    else:
        kernels = Counter(tactic["kernel"] for tactic in report["tactics"])
        section("Kernels of linear layers", {kernel: f"{count} nodes" for kernel, count in kernels.items()})
    check = report.get("check")
    section("Check against Transformers", check_facts(check) if check else {"not checked": "built with --no-check"})
