"""Import of a .gguf file: once, into a Hugging Face folder in the cache, dequantized to bf16.

Transformers supplies what differs between architectures (the config, the names, the layout of each tensor); tensors
are dequantized and written one at a time, so that memory is bounded by the largest of them, not by the model.
Anything in the file that would change the model's results and cannot be carried over is an error.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..atomic import new_folder
from ..cache import cache_dir
from ..errors import CheckpointError
from ..progress import Progress, Task
from .gguf_file import GgufFile, GgufTensor, read_gguf
from .gguf_rope import rope_from_gguf
from .writer import SafetensorsWriter, new_safetensors

_FORMAT = 1  # counts changes to what an import writes
_BF16 = np.dtype(ml_dtypes.bfloat16)
_BY_ROWS = ("token_embd.weight", "output.weight")  # the largest tensors, which no architecture rearranges
_ROWS_ELEMENTS = 1 << 23
_HASH_BYTES = 8 << 20
_KEPT_OUT = ("rope_freqs.weight",)  # expressed in the config instead


def import_gguf(path: Path, progress: Progress) -> Path:
    """The Hugging Face folder made from `path`: taken from the cache, or made there.

    Raises CheckpointError for a file that is damaged or cut short, of an architecture Transformers cannot import, or
    that holds tensors the model's class does not know.
    """
    digest = _content_hash(path, progress)
    target = cache_dir("sources") / f"{path.stem}-{digest[:16]}-v{_FORMAT}"
    if (target / "config.json").exists():
        return target
    source = read_gguf(path)
    with new_folder(target) as work:
        _import(source, work, progress)
    return target


def _content_hash(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file, progress.task(f"Reading {path.name}", path.stat().st_size) as task:
            while block := file.read(_HASH_BYTES):
                digest.update(block)
                task.advance(len(block))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()


def _import(source: GgufFile, work: Path, progress: Progress) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    path = source.path
    try:
        config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    except Exception as error:
        raise CheckpointError(f"{path}: Transformers cannot import this GGUF file: {error}") from error
    rope = rope_from_gguf(source, config)
    try:
        _write_tensors(source, model, work, progress)
    except (KeyError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: does not fit {type(model).__name__}: {error}") from error
    _write_config(model, rope, work)
    _write_tokenizer(path, config, work)


def _write_tensors(source: GgufFile, model: Any, work: Path, progress: Progress) -> None:
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    names, layout = _names(source, model), _layout(model)
    processor = TENSOR_PROCESSORS.get(source.architecture, TensorProcessor)(config=model.config.to_dict())
    gathered: dict[str, Any] = {"tensors": {}}  # processors put here what they assemble from several tensors
    with (
        new_safetensors(work / "model.safetensors", layout) as writer,
        progress.task(f"Importing {source.path.name}", sum(tensor.data.nbytes for tensor in source.tensors)) as task,
    ):
        for tensor in source.tensors:
            if tensor.name in _BY_ROWS and tensor.name in names:
                _write_by_rows(writer, names[tensor.name], tensor, task)
                continue
            result = processor.process(
                weights=tensor.dequantize(), name=tensor.name, tensor_key_mapping=names, parsed_parameters=gathered
            )
            if result.name in names:
                writer.write(names[result.name], np.asarray(result.weights))
            task.advance(tensor.data.nbytes)
        for name, value in gathered["tensors"].items():
            writer.write(name, value.numpy())
        if writer.incomplete:
            raise CheckpointError(f"{source.path}: tensors are missing: {', '.join(writer.incomplete)}.")


@dataclass(frozen=True)
class _Names:
    """As much of a model as Transformers looks at to find GGUF's names of its tensors.

    Given the model itself, it builds its table of names anew for every module, which takes seconds.
    """

    config: Any
    tensors: dict[str, Any]
    children: tuple[tuple[str, "_Names"], ...] = ()

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def named_children(self) -> tuple[tuple[str, "_Names"], ...]:
        return self.children


def _names(source: GgufFile, model: Any) -> dict[str, str]:
    """GGUF tensor name to Transformers parameter name. Raises CheckpointError for tensors without a place."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    processor = TENSOR_PROCESSORS.get(source.architecture, TensorProcessor)(config=model.config.to_dict())
    base = _Names(model.config, model.base_model.state_dict())
    whole = _Names(model.config, model.state_dict(), ((model.base_model_prefix, base),))
    names: dict[str, str] = get_gguf_hf_weights_map(whole, processor)
    unknown = [
        tensor.name
        for tensor in source.tensors
        if tensor.name not in names and tensor.name not in _KEPT_OUT and "_exps" not in tensor.name
    ]
    if unknown:
        raise CheckpointError(
            f"{source.path}: the model's class has no place for these tensors: {', '.join(unknown)}. "
            "Use the model's safetensors checkpoint."
        )
    return names


def _layout(model: Any) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """The model's parameters and saved buffers, each shared one once."""
    distinct = {id(tensor): name for name, tensor in reversed(model.state_dict(keep_vars=True).items())}
    return {
        name: (_BF16, tuple(tensor.shape))
        for name, tensor in model.state_dict(keep_vars=True).items()
        if distinct[id(tensor)] == name
    }


def _write_by_rows(writer: SafetensorsWriter, name: str, tensor: GgufTensor, task: Task) -> None:
    rows, columns = tensor.shape
    step = max(1, _ROWS_ELEMENTS // columns)
    for first in range(0, rows, step):
        values = tensor.dequantize(slice(first, first + step))
        writer.write(name, values, first)
        task.advance(tensor.data.nbytes * len(values) / rows)


def _write_config(model: Any, rope: dict[str, Any] | None, work: Path) -> None:
    config = json.loads(model.config.to_json_string())
    config.pop("_model_name_or_path", None)
    config.update(architectures=[type(model).__name__], dtype="bfloat16")
    if rope:
        config["rope_parameters"] = rope
    generation = {
        key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if config.get(key) is not None
    }
    _write_json(work / "config.json", config)
    _write_json(work / "generation_config.json", generation)


def _write_tokenizer(path: Path, config: Any, work: Path) -> None:
    """The tokenizer and chat template, converted by Transformers; keys that only its newest versions know go."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
        tokenizer.save_pretrained(str(work))
    except Exception as error:
        raise CheckpointError(f"{path}: its tokenizer cannot be converted: {error}") from error
    settings = json.loads((work / "tokenizer_config.json").read_bytes())
    settings = {key: value for key, value in settings.items() if key not in ("backend", "is_local", "local_files_only")}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["model_max_length"] = config.max_position_embeddings
    _write_json(work / "tokenizer_config.json", settings)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
