"""Which writer packs a checkpoint's weights, by the format's name."""

from ...errors import BuildError
from ...quantization.scheme import KvType, LinearScheme
from .awq_writer import AwqWriter
from .compressed_writer import CompressedTensorsWriter
from .gptq_writer import GptqWriter
from .layout_writer import LayoutWriter

_FORMATS = ("compressed-tensors", "awq", "gptq")


def writer_of(
    format: str, scheme: LinearScheme, kv_cache: KvType | None = None, *, per_tensor: bool = False
) -> LayoutWriter:
    """The writer of a format ("compressed-tensors", "awq", "gptq") for weights of one scheme.

    `per_tensor`: FP8 weights have a single scale. Raises BuildError where the format cannot hold the scheme, saying
    what it holds.
    """
    if format == "compressed-tensors":
        return CompressedTensorsWriter(scheme, kv_cache, per_tensor=per_tensor)
    if format not in _FORMATS:
        raise BuildError(f"no format named {format!r}; known: {', '.join(_FORMATS)}")
    if kv_cache is not None:
        raise BuildError(
            f"the {format} format says nothing of a KV cache; use --format compressed-tensors, or ask for --kv-cache "
            "when an engine is built"
        )
    return AwqWriter(scheme) if format == "awq" else GptqWriter(scheme)
