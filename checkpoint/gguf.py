"""Import of a GGUF file, or of the several of a model: once, into a Hugging Face folder in the cache, without loss.

Transformers supplies what differs between architectures. Anything in the file that would change the model's results
and cannot be carried over is an error.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..kept import find, keep
from ..progress import Progress
from .gguf_config import transformers_config
from .gguf_counts import check_counts
from .gguf_file import GgufFile
from .gguf_split import base_name, read_gguf_model
from .gguf_tensors import GgufTensors
from .gguf_tokenizer import write_tokenizer
from .gguf_vocabulary import Vocabulary, read_vocabulary

_FORMAT = 4  # counts changes to what an import writes
_HASH_BYTES = 8 << 20


def import_gguf(path: Path, progress: Progress) -> Path:
    """The Hugging Face folder made from `path`, of parts the first: taken from the cache, or made there.

    Raises CheckpointError for a file that is damaged or cut short, of an architecture Transformers cannot import, or
    that holds tensors the model's class does not know.
    """
    source, parts = read_gguf_model(path)
    name = f"{base_name(path)}-{_content_hash(parts, progress)[:16]}-v{_FORMAT}"
    return find("sources", name) or keep("sources", name, lambda work: _import(source, work, progress))


def _content_hash(paths: list[Path], progress: Progress) -> str:
    digest = hashlib.sha256()
    for path in paths:
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
    from transformers import AutoModelForCausalLM

    path = source.path
    check_counts(source)
    vocabulary = read_vocabulary(source)
    config = transformers_config(source, len(vocabulary.tokens))
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
    _write_config(model, tensors.dtype, vocabulary, work)
    write_tokenizer(vocabulary, getattr(config, "max_position_embeddings", None), work)


def _write_config(model: Any, dtype: str, vocabulary: Vocabulary, work: Path) -> None:
    config = json.loads(model.config.to_json_string())
    config.pop("_model_name_or_path", None)
    roles = vocabulary.roles
    named = {f"{role}_token_id": roles[role] for role in ("bos", "eos", "pad") if role in roles}
    config.update(named, architectures=[type(model).__name__], dtype=dtype)
    generation: dict[str, Any] = dict(named)
    if vocabulary.ends:
        generation["eos_token_id"] = list(vocabulary.ends)
    suppressed = vocabulary.source.array("tokenizer.ggml.suppress_tokens")
    if suppressed:
        generation["suppress_tokens"] = [index for index in suppressed if index in range(len(vocabulary.tokens))]
    _write_json(work / "config.json", config)
    _write_json(work / "generation_config.json", generation)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
