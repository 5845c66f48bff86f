"""The tokenizer and chat template of a GGUF file, as a Hugging Face folder has them."""

import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .gguf_file import GgufFile

# Values of tokenizer.ggml.pre for which llama.cpp takes every digit by itself before GPT-2's rule splits the rest;
# Transformers' conversion leaves that out.
_SINGLE_DIGITS = ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b")


def write_tokenizer(source: GgufFile, max_length: int, work: Path) -> None:
    """Convert with Transformers and write into `work`; keys that only its newest versions know go.

    Raises CheckpointError where Transformers cannot convert it.
    """
    from transformers import AutoTokenizer

    path = source.path
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
        if source.metadata.get("tokenizer.ggml.pre") in _SINGLE_DIGITS:
            _split_digits(tokenizer.backend_tokenizer)
        tokenizer.save_pretrained(str(work))
    except Exception as error:
        raise CheckpointError(f"{path}: its tokenizer cannot be converted: {error}") from error
    settings_path = work / "tokenizer_config.json"
    settings = json.loads(settings_path.read_bytes())
    settings = {key: value for key, value in settings.items() if key not in ("backend", "is_local", "local_files_only")}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["model_max_length"] = max_length
    settings_path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    rest = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), rest])
