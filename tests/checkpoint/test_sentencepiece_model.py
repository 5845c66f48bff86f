"""tokenizer.model converted: the ids that SentencePiece itself gives, over many strings."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from enginesmith.checkpoint.tokenizer_files import save_tokenizer, token_id
from enginesmith.errors import CheckpointError

_RANDOM = Random(0)
_WORDS = ["".join(_RANDOM.choices(["the", "ing", "ed", "(r)", "12", *"aeionst,.-="], k=3)) for _ in range(300)]
CORPUS = [
    *(" ".join(_RANDOM.choices(_WORDS, k=12)) for _ in range(150)),
    *["日本語のテキスト 東京都", "Übergrößenträger café naïve", "한국어 문장"] * 9,
]
LLAMA = {
    "model_type": "bpe",
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "split_digits": True,
    "allow_whitespace_only_pieces": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "chat": {**LLAMA, "user_defined_symbols": ["<|im_start|>", "<|im_end|>", "\n\n"]},
    "gemma": {**LLAMA, "add_dummy_prefix": False, "user_defined_symbols": ["<start_of_turn>", "  ", "   ", "\n"]},
    "bpe": {"model_type": "bpe"},
    "unigram": {"model_type": "unigram"},
    "unigram without bytes": {"model_type": "unigram", "byte_fallback": False},
    "t5": {"model_type": "unigram", "byte_fallback": False, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}
_OPTIONS = {"vocab_size": 450, "hard_vocab_limit": False, "character_coverage": 0.99, "byte_fallback": True}
STRINGS = [
    *(
        "",
        " ",
        "  ",
        "a",
        " a",
        "a ",
        "  a  b  ",
        "\n",
        "a\nb",
        "\ta",
        "Hello world",
        "12345 6",
        "   \n\n  x",
        "▁a",
        "▁",
    ),
    *(
        "日本語のテキスト",
        "東京 都",
        "🙂🙃",
        "Übergrößenträger",
        "e\u0301",
        "ﬁ ½ ①",
        "क्षि",
        "\u200b",
        "\xa0x",
        "\x00",
        "\r\n",
    ),
    *("<|im_start|>user\nhi<|im_end|>", "x<|im_start|> y", "<start_of_turn>user", "if x:\n    return  y\n", *CORPUS),
]
PARTS = [*"abcdefgh  \n.,é日🙂▁", "the", "ing", "  ", "\n\n", "<|im_start|>", "e\u0301", "①"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny tokenizer.model of one of KINDS."""
    made: dict[str, Path] = {}

    def folder_of(kind: str) -> Path:
        if kind not in made:
            model = io.BytesIO()
            SentencePieceTrainer.train(
                sentence_iterator=iter(CORPUS),
                model_writer=model,
                num_threads=1,
                minloglevel=2,
                **_OPTIONS | KINDS[kind],
            )
            made[kind] = tmp_path_factory.mktemp("sentencepiece")
            (made[kind] / "tokenizer.model").write_bytes(model.getvalue())
        return made[kind]

    return folder_of


def _both(folder: Path, output: Path) -> tuple[SentencePieceProcessor, Tokenizer]:
    save_tokenizer(folder, output)
    return SentencePieceProcessor(str(folder / "tokenizer.model")), Tokenizer.from_file(str(output / "tokenizer.json"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_sentencepiece(kind: str, trained: Callable[[str], Path], tmp_path: Path) -> None:
    theirs, ours = _both(trained(kind), tmp_path)
    assert ours.get_vocab_size() == theirs.vocab_size()

    @settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(PARTS), max_size=24).map("".join))
    def check(text: str) -> None:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)

    check()
    for text in STRINGS:
        ids = theirs.encode(text)
        assert ours.encode(text, add_special_tokens=False).ids == ids, text
        if theirs.unk_id() not in ids:  # SentencePiece decodes it as " ⁇ "
            assert ours.decode(ids) == theirs.decode(ids)


def test_what_follows_a_special_token_is_a_text_of_its_own(trained: Callable[[str], Path], tmp_path: Path) -> None:
    theirs, ours = _both(trained("llama"), tmp_path)
    bos, eos = theirs.bos_id(), theirs.eos_id()
    turns = [theirs.encode(text) for text in ("the first", " second\n")]
    assert ours.encode("the first</s><s> second\n").ids == [bos, *turns[0], eos, bos, *turns[1]]


@pytest.mark.parametrize("tokenizer_class", ["LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"])
def test_tokenizer_json_is_taken_as_it_is(trained: Callable[[str], Path], tmp_path: Path, tokenizer_class: str) -> None:
    """Transformers 5 builds a LlamaTokenizer anew from the vocabulary, unlike what the model was trained with."""
    transformers = pytest.importorskip("transformers")
    theirs, ours = _both(trained("llama"), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    save_tokenizer(tmp_path, tmp_path / "engine")
    kept = Tokenizer.from_file(str(tmp_path / "engine" / "tokenizer.json"))
    hf = transformers.AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    for text in (" a", "  two", "a</s>b", "the model"):
        expected = (
            [*theirs.encode("a"), theirs.eos_id(), *theirs.encode("b")] if "</s>" in text else theirs.encode(text)
        )
        assert kept.encode(text, add_special_tokens=False).ids == expected
        same = hf(text, add_special_tokens=False)["input_ids"] == expected
        assert same == (text == "the model" or "Llama" not in tokenizer_class)
    assert ours.to_str() == kept.to_str()


def test_what_other_files_add(trained: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes((trained("llama") / "tokenizer.model").read_bytes())
    size = SentencePieceProcessor(str(folder / "tokenizer.model")).vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<pad>": size, "<more>": size + 1}))
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": False,
        "add_eos_token": True,
        "pad_token": "<pad>",
        "bos_token": None,
        "chat_template": {},
        "added_tokens_decoder": {"2": {"content": "<end>", "special": True}, f"{size + 1}": {"content": "<more>"}},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    _, ours = _both(folder, tmp_path / "out")
    ids = ours.encode("a<pad><more><end>").ids
    assert ids[-4:] == [size, size + 1, 2, 2]
    assert ours.decode(ids) == "a<more>"
    saved = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (saved["bos_token"], saved["eos_token"], saved["pad_token"]) == ("<s>", "<end>", "<pad>")
    assert token_id(folder, "</s>") == 2
    for added in ({"<x>": size + 5}, {"<x>": -1}, {"<x>": "1e3"}, {"<x>": None}):
        (folder / "added_tokens.json").write_text(json.dumps(added))
        (folder / "tokenizer_config.json").write_text("{}")
        with pytest.raises(CheckpointError, match="added tokens"):
            save_tokenizer(folder, tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"no model", b"IQ== 0\nIg== 1\n", b"\xff" * 99])
def test_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"tokenizer\.model: .*convert") as raised:
        save_tokenizer(tmp_path, tmp_path / "out")
    assert "tiktoken" not in str(raised.value)


def test_kinds_that_are_not_read(trained: Callable[[str], Path], tmp_path: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString((trained("llama") / "tokenizer.model").read_bytes())
    model.trainer_spec.model_type = 4
    (tmp_path / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match="a SentencePiece model of characters or words"):
        save_tokenizer(tmp_path, tmp_path / "out")
    model.trainer_spec.model_type = 2
    model.normalizer_spec.precompiled_charsmap = b"\xff" * 4  # the library panics on it
    (tmp_path / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=r"could not be converted to tokenizer\.json"):
        save_tokenizer(tmp_path, tmp_path / "out")
