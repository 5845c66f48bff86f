"""The life of a build, from a checkpoint to an engine folder. Each step is a module of its own; this is their order."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..atomic import new_folder
from ..blame import could_not_write
from ..checkpoint.checkpoint import open_checkpoint
from ..checkpoint.layouts.layout import Layout
from ..checkpoint.layouts.registry import layout_of
from ..checkpoint.tokenizer_files import has_tokenizer
from ..errors import BuildError
from ..progress import Progress
from ..runtime.engine_dir import BUILD_REPORT, TOKENIZER, EngineDir, write_engine
from .bind import bind_network
from .build_options import BuildConfig
from .check import Reference, check, make_reference
from .checkpoint_tokenizer import save_engine_tokenizer
from .describe import manifest_of, save_network
from .generation_defaults import generation_defaults
from .limits import choose_max_seq_len
from .quantized_source import QuantizedSource
from .report import BuildReport
from .targets.registry import target_of
from .targets.target import Compilation
from .traced_checkpoint import trace_checkpoint


def compile_engine(
    checkpoint: str | Path,
    output: Path,
    config: BuildConfig,
    progress: Progress,
    name: str | None = None,
    source: QuantizedSource | None = None,
) -> BuildReport:
    """Compile the engine folder `output` from a checkpoint as it is; raises what `build` raises.

    `source`: of a checkpoint that the build quantized, for the report.
    """
    host = target_of(config.target).check_host(config.target, runs_here=config.check)
    opened = open_checkpoint(checkpoint, progress)
    layout = layout_of(opened)
    _check_scheme(config, layout)
    max_seq_len = choose_max_seq_len(opened, config)
    if config.kv_cache is None and layout is not None and layout.kv_cache is not None:
        config = config.model_copy(update={"kv_cache": layout.kv_cache.type.value})
    report = BuildReport(
        checkpoint=str(source.original.path if source else checkpoint),
        engine=str(output),
        architecture="",
        target=host.title,
        compiler=host.compiler,
        checkpoint_bytes=opened.nbytes,
        quantized=layout.title if layout else "",
        notes=generation_defaults(opened.generation_config).notes,
    )
    with report.time("trace"), progress.task("trace"):
        network, notes = trace_checkpoint(opened, max_seq_len, progress)
        report.notes += notes
        report.architecture = network.architecture
        if network.long_rope_after is not None:
            report.notes.append(
                f"sequences of more than {network.long_rope_after} tokens take the long factors of LongRoPE; one that "
                "grows past that is computed again then, which takes as long as a prompt of that length"
            )
    with report.time("bind"):
        weights = bind_network(network, opened, layout)
        report.notes += layout.notes if layout else []
    with report.time("fuse"), progress.task("fuse"):
        from .passes.pipeline import optimize

        report.fusions = dict(optimize(network))
    with report.time("plan"), progress.task("plan"):
        planned = host.plan(network, config, max_seq_len, weights.stored, weights.kv_scales)
        report.describe(planned)
    with _named_on_failure(output), new_folder(output) as folder:
        if has_tokenizer(opened.path):
            report.chat_template_error = save_engine_tokenizer(opened.path, folder / TOKENIZER)
        compilation: Compilation | None = None
        reference: Reference | None = None
        try:
            compilation = planned.start_compiling(folder)
            report.compiled = not compilation.cached
            with report.time("pack"):
                planned.pack(folder, weights.read, progress)
            if config.check:
                with report.time("reference"):  # while the compiler still works
                    reference = make_reference(weights, planned.program.vocab_size, max_seq_len, progress)
            with report.time("compile"), progress.task("compile"):
                compilation.wait()
            report.notes += planned.notes()
        finally:
            if compilation is not None:
                compilation.cancel()
        manifest = manifest_of(opened, network, planned, name, report.chat_template_error)
        save_network(network, planned.program, folder / "network.onnx")
        if source is not None:
            with report.time("reference"):
                report.quantization = source.facts(reference, progress)
        if reference is not None:
            with report.time("check"):
                report.check = check(EngineDir(folder, manifest), reference, planned, progress)
        report.save(folder / BUILD_REPORT)
        with report.time("seal"), progress.task("seal"):
            write_engine(folder, manifest)
    return report


@contextmanager
def _named_on_failure(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(could_not_write(output, error)) from error


def _check_scheme(config: BuildConfig, layout: Layout | None) -> None:
    """Refuse to quantize what is quantized."""
    if layout is not None and config.weights is not None:
        raise BuildError(
            f"--weights {config.weights} was asked for, but the checkpoint is already quantized ({layout.title}) and "
            "is built as it is; leave --weights out, or give the unquantized checkpoint"
        )
