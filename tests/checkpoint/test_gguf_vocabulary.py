"""Which tokens end a generation: as llama.cpp's llama_vocab_is_eog says of the same vocabularies."""

from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_vocabulary

from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.checkpoint.gguf_vocabulary import CONTROL, NORMAL, USER_DEFINED, Vocabulary, read_vocabulary


def vocabulary(path: Path, tokens: list[str], metadata: dict[str, Any]) -> Vocabulary:
    base = {"scores": [-float(index) for index in range(len(tokens))], "bos_token_id": 0, "eos_token_id": 1}
    return read_vocabulary(read_gguf(write_vocabulary(path / "x.gguf", "llama", tokens, base | metadata)))


@pytest.mark.parametrize(
    ("others", "metadata", "ends"),
    [
        ([], {}, [1]),
        (["stop"], {"eot_token_id": 3}, [1, 3]),
        (["stop"], {"eom_token_id": 3}, [1, 3]),
        (["stop"], {"eot_token_id": 99}, [1]),
        (["x", "y"], {"eos_token_ids": [3, 4]}, [1, 3, 4]),  # a key of other tools; llama.cpp has none for several
        (["<|eot_id|>", "<|eom_id|>"], {}, [1, 3, 4]),
        (["<|im_start|>", "<|im_end|>"], {}, [1, 4]),
        (["<start_of_turn>", "<end_of_turn>"], {}, [1, 4]),
        (["<|end|>"], {}, [1, 3]),
        (["<|end|>", "<|return|>", "<|call|>"], {}, [1, 4, 5]),
        (["<|end|>", "<|calls|>", "<|flush|>"], {}, [1, 4, 5]),
        (["</s>", "<|tool_response>", "<turn|>"], {}, [1, 4, 5]),
        (["</s>"], {}, [1, 3]),
        (["<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"], {}, [1, 4, 5, 6]),
        (["<fim_pad>", "pad"], {"fim_pad_token_id": 4}, [1, 4]),
        (["<EOT>"], {}, [1, 3]),
        (["<\uff5cend▁of▁sentence\uff5c>"], {}, [1, 3]),
    ],
)
def test_ends(others: list[str], metadata: dict[str, Any], ends: list[int], tmp_path: Path) -> None:
    found = vocabulary(tmp_path, ["<bos>", "<stop>", "a", *others], metadata).ends
    assert sorted(found) == ends
    assert found[0] == 1


def test_kinds_that_texts_override(tmp_path: Path) -> None:
    tokens = ["<bos>", "<stop>", "a", "<|im_end|>", "<|message|>", "</s>", "<|tool_response>", "<|fim_prefix|>"]
    kinds = vocabulary(tmp_path, tokens, {"token_type": [3, 3, 1, 1, 3, 3, 1, 1]}).kinds
    assert kinds == [CONTROL, CONTROL, NORMAL, CONTROL, USER_DEFINED, NORMAL, CONTROL, CONTROL]


def test_roles_by_default(tmp_path: Path) -> None:
    """llama.cpp's, for a SentencePiece vocabulary whose file names none."""
    path = write_vocabulary(tmp_path / "x.gguf", "llama", ["<unk>", "<s>", "</s>"], {"scores": [0.0, 1.0, 2.0]})
    assert read_vocabulary(read_gguf(path)).roles == {"bos": 1, "eos": 2, "unk": 0}
