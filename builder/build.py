"""The life of a build, from a checkpoint to an engine folder. Each step is a module of its own; this is their order."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic import new_folder
from ..checkpoint.checkpoint import Checkpoint, open_checkpoint
from ..checkpoint.layouts.layout import Layout
from ..checkpoint.layouts.registry import layout_of
from ..checkpoint.sizes import check_sizes
from ..checkpoint.tokenizer_files import has_tokenizer, save_tokenizer
from ..checkpoint.weights import bind_weights
from ..errors import BuildError, CheckpointError, EngineError, RequestError
from ..progress import NoProgress, Progress
from ..runtime.engine_dir import MANIFEST, TOKENIZER, EngineDir, write_engine
from ..runtime.tokenizer import load_tokenizer
from .check import Reference, check, make_reference
from .config import BuildConfig
from .describe import LIBRARY, WEIGHTS, generation_defaults, manifest_of, save_network
from .limits import choose_max_seq_len
from .report import BuildReport
from .targets.cpu import toolchain
from .targets.cpu.target import choose_isa, plan
from .targets.cpu.weights import write_weights

if TYPE_CHECKING:
    from .quantize.config import QuantizeConfig
    from .quantize.within_build import QuantizedSource


def build(
    checkpoint: str | Path,
    output: str | Path,
    config: BuildConfig | None = None,
    *,
    quantize: "QuantizeConfig | None" = None,
    progress: Progress | None = None,
    name: str | None = None,
) -> BuildReport:
    """Build the engine folder `output` from a Hugging Face folder or a GGUF file, which `quantize` quantizes first.

    `name`: of the model; default: what the checkpoint calls itself. The folder appears whole, or not at all. Raises
    CheckpointError (not a usable checkpoint), UnsupportedModelError (it needs an operation that the target lacks,
    named), ToolchainError (no compiler), BuildError (a bad option, a full disk, or an engine whose logits are too far
    from those of Transformers).
    """
    config, progress = config or BuildConfig(), progress or NoProgress()
    output = Path(output)
    _check_output(output)
    if quantize is None:
        return _build(checkpoint, output, config, progress, name)
    from .quantize.within_build import quantized

    choose_isa(config)
    toolchain.find_compiler()  # an error now rather than after minutes
    with quantized(checkpoint, output, config, quantize, progress) as source:
        return _build(source.path, output, config, progress, name, source)


def _build(
    checkpoint: str | Path,
    output: Path,
    config: BuildConfig,
    progress: Progress,
    name: str | None,
    source: "QuantizedSource | None" = None,
) -> BuildReport:
    isa = choose_isa(config)
    compiler = toolchain.find_compiler()
    opened = open_checkpoint(checkpoint, progress)
    layout = layout_of(opened)
    _check_scheme(config, layout)
    check_sizes(opened)
    generation_defaults(opened.generation_config)  # refused now rather than after a minute
    max_seq_len = choose_max_seq_len(opened, config)
    if config.kv_cache is None and layout is not None and layout.kv_cache is not None:
        config = config.model_copy(update={"kv_cache": layout.kv_cache.type.value})
    report = BuildReport(
        checkpoint=str(source.original.path if source else checkpoint),
        engine=str(output),
        architecture="",
        isa=str(isa),
        compiler=(compiler.version.splitlines() or [compiler.name])[0],
        checkpoint_bytes=opened.nbytes,
        quantized=layout.title if layout else "",
    )
    with report.time("trace"), progress.task("trace"):
        from .trace.trace import trace

        network = trace(opened.config, max_seq_len=max_seq_len, progress=progress)
        report.architecture = network.architecture
    with report.time("bind"):
        shapes = {name: parameter.shape for name, parameter in network.parameters.items()}
        weights = bind_weights(opened, layout, shapes, network.tied, network.ignorable_unexpected, network.base_prefix)
    with report.time("fuse"), progress.task("fuse"):
        from .passes.pipeline import optimize

        report.fusions = dict(optimize(network))
    with report.time("plan"), progress.task("plan"):
        planned = plan(network, config, isa, max_seq_len, weights.stored, weights.kv_scales)
        report.describe(planned)
    with _named_on_failure(output), new_folder(output) as folder:
        if has_tokenizer(opened.path):
            report.chat_template_error = _save_tokenizer(opened, folder / TOKENIZER)
        (folder / LIBRARY).parent.mkdir()
        (folder / LIBRARY).with_suffix(".cpp").write_text(planned.source)
        compilation: toolchain.Compilation | None = None
        reference: Reference | None = None
        try:
            compilation = toolchain.start_compiling(planned.source, isa, compiler)
            report.compiled = not compilation.cached
            with report.time("pack"):
                write_weights(folder / WEIGHTS, planned.program, isa, weights.read, progress)
            if config.check:
                with report.time("reference"):  # while the compiler still works
                    reference = make_reference(weights, planned.program.vocab_size, max_seq_len, progress)
            with report.time("compile"), progress.task("compile"):
                shutil.copyfile(compilation.wait(), folder / LIBRARY)
        finally:
            if compilation is not None:
                compilation.cancel()
        manifest = manifest_of(opened, network, planned, name, report.chat_template_error)
        save_network(network, planned.program, folder / "network.onnx")
        if source is not None:
            with report.time("reference"):
                report.quantization = source.facts(reference, max_seq_len, progress)
        if reference is not None:
            with report.time("check"):
                report.check = check(EngineDir(folder, manifest), reference, planned, progress)
        report.save(folder / "report.json")
        with report.time("seal"), progress.task("seal"):
            write_engine(folder, manifest)
    return report


@contextmanager
def _named_on_failure(output: Path) -> Iterator[None]:
    """A copy that failed for want of space blames its source: say what could not be written."""
    try:
        yield
    except OSError as error:
        raise BuildError(f"{output} could not be written: {error.strerror or error}; free some space there") from error


def _save_tokenizer(checkpoint: Checkpoint, folder: Path) -> str | None:
    """Copy the tokenizer, and see that the runtime can read what it is given. Returns what ails its chat template."""
    save_tokenizer(checkpoint.path, folder)
    try:
        tokenizer = load_tokenizer(folder)
    except EngineError as error:
        reason = str(error).replace(str(folder), str(checkpoint.path))
        raise CheckpointError(f"{reason}. The tokenizer is damaged; download it again.") from None
    try:
        _ = tokenizer.chat_template
    except RequestError as error:
        return str(error)
    return None


def _check_scheme(config: BuildConfig, layout: Layout | None) -> None:
    """Refuse to quantize what is quantized."""
    if layout is not None and config.weights is not None:
        raise BuildError(
            f"--weights {config.weights} was asked for, but the checkpoint is already quantized ({layout.title}) and "
            "is built as it is; leave --weights out, or give the unquantized checkpoint"
        )


def _check_output(output: Path) -> None:
    """Refuse to replace anything but an engine or an empty folder, and places where nothing can be written."""
    try:
        if output.exists():
            if not output.is_dir() or (any(output.iterdir()) and not (output / MANIFEST).exists()):
                raise BuildError(f"{output} exists and is not an engine; name another output, or remove it first")
            return
        place = next(parent for parent in output.absolute().parents if parent.exists())
    except OSError as error:
        raise BuildError(f"{output}: {error.strerror}; name another output"[:500]) from None
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise BuildError(f"{output}: {place} is not a folder that can be written; name another output")
