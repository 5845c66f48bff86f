"""The life of a quantization, from a checkpoint to a quantized one. Each step is a module; this is their order."""

import time
from importlib.metadata import version
from pathlib import Path

from ...checkpoint.checkpoint import Checkpoint, open_checkpoint
from ...checkpoint.folder import REPORT, CheckpointFolder
from ...checkpoint.layouts.registry import layout_of
from ...checkpoint.layouts.writers import writer_of
from ...errors import BuildError, OptionError, shown
from ...progress import NoProgress, Progress
from ...quantization.scheme import ActivationScheme
from ..bind import bind_network
from ..build_options import BuildConfig
from ..fingerprint import code_digest, digest, stamp
from ..limits import choose_max_seq_len
from ..network import Network
from ..traced_checkpoint import trace_checkpoint
from .calibration import calibrate
from .methods import quantize_block
from .quantize_options import QuantizeConfig
from .report import QuantizeReport
from .selection import Selection, select
from .shards import Shards, require_finite

_CALIBRATED = ("awq", "gptq", "smoothquant")


def quantize(
    checkpoint: str | Path, output: str | Path, config: QuantizeConfig, *, progress: Progress | None = None
) -> QuantizeReport:
    """Write the checkpoint folder `output`: `checkpoint`, a Hugging Face folder or a GGUF file, quantized.

    It appears whole, or not at all. Decoder layers that are done are kept in a hidden folder beside it, so that the
    same call goes on where an interrupted one stopped. Memory: a decoder layer in float32, and the hidden states of
    the calibration data. Raises CheckpointError (not a usable checkpoint), UnsupportedModelError (it cannot be traced,
    or run layer by layer), BuildError (a bad option, a checkpoint that is quantized already, weights that are not
    finite, a layer that the scheme or format does not fit, too little calibration data, a full disk).
    """
    start, progress, output = time.monotonic(), progress or NoProgress(), Path(output)
    _require_config(config)
    opened = open_checkpoint(checkpoint, progress)
    _refuse_quantized(opened)
    writer = writer_of(config.format, config.scheme, config.kv_cache, per_tensor=config.per_tensor)
    max_seq_len = choose_max_seq_len(opened, BuildConfig())
    with progress.task("trace"):
        network, _ = trace_checkpoint(opened, max_seq_len, progress)
    weights = bind_network(network, opened, None)
    selection = select(network, config.ignore)
    for layer in selection.layers:
        writer.check(layer.name, layer.n, layer.k)
    report = QuantizeReport(
        method=config.method,
        scheme=str(config.scheme),
        format=config.format,
        kv_cache=config.kv_cache,
        seed=config.seed,
        left_alone=selection.left_alone,
        bytes_before=opened.nbytes,
    )
    with CheckpointFolder(output, opened, _fingerprint(opened, config)) as folder:
        shards = Shards(folder, weights, writer, selection)
        if needs_calibration(config):
            calibration = calibrate(opened, network.vocab_size, config, progress)
            report.calibration = calibration.facts()
            from .calibrated import quantize_calibrated  # which needs torch

            quantize_calibrated(network, weights, selection, shards, calibration, config, progress)
        else:
            _quantize_weights(selection, shards, config, progress)
        shards.save_others(_outside(network, selection))
        report.layers = shards.reports()
        with progress.task("write"):
            folder.finish(shards.config, {REPORT: report.to_json()})
    report.bytes_after, report.seconds = open_checkpoint(output).nbytes, time.monotonic() - start
    return report


def needs_calibration(config: QuantizeConfig) -> bool:
    """Whether the model must be run on calibration data: for the method, for static scales of inputs or of the KV
    cache, or because calibration data was named for FP8 weights."""
    static = config.scheme.activation is ActivationScheme.STATIC
    named = config.method == "fp8" and config.calibration is not None
    return config.method in _CALIBRATED or static or named or config.kv_cache is not None


def _quantize_weights(selection: Selection, shards: Shards, config: QuantizeConfig, progress: Progress) -> None:
    """Methods that look at weights alone."""
    with progress.task("quantize", len(selection.blocks)) as task:
        missing = shards.missing
        task.advance(len(selection.blocks) - len(missing))
        for block in (selection.blocks[index] for index in missing):
            parameters = shards.load(block)
            for name, tensor in parameters.items():
                require_finite(name, tensor)
            layers = quantize_block(block, parameters, shards.dtypes(block), {}, config)
            shards.save(block, {}, layers, {})
            task.advance()


def _outside(network: Network, selection: Selection) -> list[str]:
    inside = {name for block in selection.blocks for name in block.parameters}
    return [name for name in network.parameters if name not in inside]


def _require_config(config: object) -> None:
    """For Python code without a type checker."""
    if not isinstance(config, QuantizeConfig):
        reason = f'how to quantize is told by a QuantizeConfig, as QuantizeConfig(method="awq"), not by {shown(config)}'
        raise OptionError(reason, None)


def _refuse_quantized(checkpoint: Checkpoint) -> None:
    layout = layout_of(checkpoint)
    if layout is not None:
        raise BuildError(
            f"{checkpoint.path} is already quantized ({layout.title}); quantize the unquantized checkpoint, or build "
            "this one as it is"
        )


def _fingerprint(checkpoint: Checkpoint, config: QuantizeConfig) -> str:
    """A digest of all that decides what is written."""
    calibration = Path(config.calibration).expanduser() if config.calibration else None
    return digest(
        {
            "config": config.model_dump(mode="json"),
            "checkpoint": stamp(checkpoint.path),
            "calibration": stamp(calibration) if calibration and calibration.is_file() else None,
            "code": code_digest(),
            "versions": {library: version(library) for library in ("numpy", "torch", "transformers")},
        }
    )
