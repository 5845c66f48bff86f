"""Import of a .gguf file: once, into a Hugging Face folder in the cache, dequantized without loss.

Transformers supplies what differs between architectures. Anything in the file that would change the model's results
and cannot be carried over is an error.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ..atomic import new_folder
from ..cache import cache_dir
from ..errors import CheckpointError
from ..progress import Progress
from .gguf_config import complete_config
from .gguf_file import GgufFile, read_gguf
from .gguf_tensors import GgufTensors
from .gguf_tokenizer import write_tokenizer

_FORMAT = 3  # counts changes to what an import writes
_HASH_BYTES = 8 << 20


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
    except Exception as error:
        raise CheckpointError(f"{path}: Transformers cannot import this GGUF file: {error}") from error
    complete_config(config, source)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:
        raise CheckpointError(f"{path}: Transformers cannot import this GGUF file: {error}") from error
    try:
        tensors = GgufTensors(source, model)
        tensors.write(work / "model.safetensors", progress)
    except (KeyError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: does not fit {type(model).__name__}: {error}") from error
    _write_config(model, tensors.dtype, work)
    write_tokenizer(source, config.max_position_embeddings, work)


def _write_config(model: Any, dtype: str, work: Path) -> None:
    config = json.loads(model.config.to_json_string())
    config.pop("_model_name_or_path", None)
    config.update(architectures=[type(model).__name__], dtype=dtype)
    generation = {
        key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if config.get(key) is not None
    }
    _write_json(work / "config.json", config)
    _write_json(work / "generation_config.json", generation)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
