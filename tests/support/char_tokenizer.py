"""A tokenizer for tiny checkpoints, whose vocabularies have 128 entries."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a: {% endif %}"
)


def write_char_tokenizer(folder: Path) -> None:
    """Tokenizer files in `folder`: single printable ASCII characters, ids 3 to 97, and a chat template."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {chr(32 + i): 3 + i for i in range(95)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
