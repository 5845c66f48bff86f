"""The tokenizer and chat templates of a GGUF file, as a Hugging Face folder has them.

Its tokens are those of llama.cpp, which is the definition of what the file's metadata mean: src/llama-vocab.cpp.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, shown
from .chat_templates import DEFAULT, save_chat_templates
from .gguf_file import GgufFile
from .gguf_pretokenizers import PRETOKENIZERS, Pretokenizer
from .gguf_vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary
from .tokenizers_library import library_errors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "▁"
_NAMED = {"bos": "bos_token", "eos": "eos_token", "unk": "unk_token", "pad": "pad_token"}
_NOT_STRIPPED_BY_PHI3 = ("<unk>", "<s>", "<|endoftext|>")


def write_tokenizer(vocabulary: Vocabulary, max_length: int | None, work: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template into `work`.

    Raises CheckpointError for kinds of tokenizers that are not read, and for vocabularies that contradict themselves.
    """
    path = vocabulary.source.path
    with library_errors(lambda why: CheckpointError(f"{path}: its tokenizer cannot be converted: {why}")):
        tokenizer = _make(vocabulary)
    tokenizer.save(str(work / "tokenizer.json"))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if max_length is not None:
        settings["model_max_length"] = max_length
    for role, name in _NAMED.items():
        if role in vocabulary.roles:
            settings[name] = vocabulary.tokens[vocabulary.roles[role]]
    templates = _chat_templates(vocabulary.source)
    if templates.keys() == {DEFAULT}:
        save_chat_templates(templates, work)
    elif templates:  # their names are checked where they are read
        settings["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (work / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _chat_templates(source: GgufFile) -> dict[str, str]:
    """`tokenizer.chat_template`, and `tokenizer.chat_template.NAME` for others."""
    prefix = "tokenizer.chat_template"
    texts = {key.removeprefix(prefix).removeprefix(".") or DEFAULT: key for key in source.metadata}
    found = {name: source.metadata[key] for name, key in texts.items() if re.fullmatch(rf"{prefix}(\..+)?", key)}
    for name, text in found.items():
        if not isinstance(text, str):
            raise CheckpointError(f"{source.path}: the chat template {name!r} should be text, found {shown(text)}.")
    return found


def _make(vocabulary: Vocabulary) -> "Tokenizer":
    kinds: dict[str, Callable[[Vocabulary], Tokenizer]] = {
        "gpt2": _bpe,
        "gemma4": _bpe,
        "llama": _sentencepiece,
        "t5": _unigram,
    }
    if vocabulary.model not in kinds:
        raise CheckpointError(
            f"{vocabulary.source.path}: a tokenizer of kind {vocabulary.model!r} is not imported from GGUF, only "
            f"{', '.join(kinds)}. Use the model's safetensors checkpoint."
        )
    tokenizer = kinds[vocabulary.model](vocabulary)
    _add_tokens(tokenizer, vocabulary)
    return tokenizer


def _bpe(vocabulary: Vocabulary) -> "Tokenizer":
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pretokenizer = _pretokenizer(vocabulary)
    merges = [_parts(merge) for merge in vocabulary.source.array("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary.ids,
            merges=merges,
            ignore_merges=pretokenizer.whole_words,
            byte_fallback=not pretokenizer.bytes,
        )
    )
    cuts: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pretokenizer.patterns]
    if pretokenizer.bytes:
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
        tokenizer.decoder = _character_decoder(strip=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    _surround(tokenizer, vocabulary, bos=pretokenizer.add_bos, eos=False, always_bos=vocabulary.model == "gemma4")
    return tokenizer


def _pretokenizer(vocabulary: Vocabulary) -> Pretokenizer:
    name = vocabulary.stated("pre", str, "default")
    if vocabulary.model == "gemma4":
        name = "gemma4"
    if name not in PRETOKENIZERS:
        raise CheckpointError(
            f"{vocabulary.source.path}: the pre-tokenizer {shown(name)} (tokenizer.ggml.pre) is not known. "
            "Use the model's safetensors checkpoint."
        )
    return PRETOKENIZERS[name]


def _parts(merge: str) -> tuple[str, str]:
    """A merge is written with a space between its parts, of which the first may begin with one."""
    at = merge.find(" ", 1)
    return merge[:at], merge[at + 1 :]


def _sentencepiece(vocabulary: Vocabulary) -> "Tokenizer":
    """SentencePiece's BPE: of all neighbours that make a token, those of the best score are merged first."""
    from tokenizers import Tokenizer, models, normalizers

    ids, scores = vocabulary.ids, vocabulary.scores
    if len(set(scores)) == 1:
        raise CheckpointError(f"{vocabulary.source.path}: a SentencePiece vocabulary without scores of its tokens.")
    merges = [
        (token[:at], token[at:])
        for token in sorted(ids, key=lambda token: -scores[ids[token]])
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    unknown = vocabulary.roles.get("unk")
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=merges,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.stated("add_space_prefix", bool, True)
    steps: list[Any] = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = _character_decoder(strip=prefix)
    _surround(tokenizer, vocabulary, bos=True, eos=False)
    return tokenizer


def _unigram(vocabulary: Vocabulary) -> "Tokenizer":
    """SentencePiece's unigram model, which T5 and XLM-RoBERTa have."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers

    scored = [
        (token, 0.0 if kind == USER_DEFINED else score)
        for token, score, kind in zip(vocabulary.tokens, vocabulary.scores, vocabulary.kinds, strict=True)
    ]
    tokenizer = Tokenizer(models.Unigram(scored, vocabulary.roles.get("unk"), False))
    charsmap = bytes(byte % 256 for byte in vocabulary.source.array("tokenizer.ggml.precompiled_charsmap"))
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if vocabulary.stated("remove_extra_whitespaces", bool, False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" +"), " "), normalizers.Prepend(_SPACE)]
    elif vocabulary.stated("add_space_prefix", bool, False):
        steps.append(normalizers.Prepend(_SPACE))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always" if len(steps) > bool(charsmap) else "never")
    _surround(tokenizer, vocabulary, bos=False, eos=True)
    return tokenizer


def _character_decoder(*, strip: bool) -> Any:
    from tokenizers import decoders

    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strip else [])])


def _surround(
    tokenizer: "Tokenizer", vocabulary: Vocabulary, *, bos: bool, eos: bool, always_bos: bool = False
) -> None:
    """Put BOS before every text and EOS behind it; `bos` and `eos`: whether, where the file does not say."""
    from tokenizers import processors

    wanted = {
        "bos": always_bos or vocabulary.stated("add_bos_token", bool, bos),
        "eos": vocabulary.stated("add_eos_token", bool, eos),
    }
    special = []
    for role in [role for role, put in wanted.items() if put]:
        if role not in vocabulary.roles:
            raise CheckpointError(
                f"{vocabulary.source.path}: asks for {role.upper()} around every text, and has no {role}_token_id."
            )
        index = vocabulary.roles[role]
        special.append({"id": role, "ids": [index], "tokens": [vocabulary.tokens[index]]})
    if special:
        before, behind = (["bos"] if wanted["bos"] else []), (["eos"] if wanted["eos"] else [])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *behind],
            pair=[*before, "$A", *behind, *(f"{role}:1" for role in before), "$B:1", *(f"{r}:1" for r in behind)],
            special_tokens=special,
        )


def _add_tokens(tokenizer: "Tokenizer", vocabulary: Vocabulary) -> None:
    """Tokens that are found in a text before anything else. Those of Phi-3 take the spaces behind them along."""
    from tokenizers import AddedToken

    name = str(vocabulary.source.metadata.get("general.name", "")).lower()
    strips = "phi-3" in name or "phi3" in name
    added = [
        AddedToken(
            token,
            normalized=False,
            special=kind != USER_DEFINED,
            rstrip=strips and token not in _NOT_STRIPPED_BY_PHI3,
        )
        for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
