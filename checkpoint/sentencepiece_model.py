"""A SentencePiece model, `tokenizer.model`, as a tokenizer of the `tokenizers` library with the same ids.

What its specification says is followed: normalizer, dummy prefix, scores, pieces of each kind. SentencePiece never
reads control pieces such as </s> in a text; here they are special tokens, and what follows one is encoded like a text
of its own, as the turns of chats are when such models are trained.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, shown
from ..extras import install_command
from ..json_files import read_bytes
from .tokenizers_library import library_errors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_UNIGRAM, _BPE = 1, 2
_SPACE = "▁"
_MAX_BYTES = 64 << 20


def convert_sentencepiece(
    path: Path, settings: Mapping[str, Any], added: Mapping[int, Mapping[str, Any]]
) -> tuple["Tokenizer", dict[str, str]]:
    """The tokenizer, and the texts of the model's special tokens (bos_token, eos_token, unk_token).

    `settings`: tokenizer_config.json, whose `add_bos_token`, `add_eos_token` and `add_prefix_space` count. `added`:
    tokens by id that other files name (`content`, `special`, `lstrip`, `rstrip`, `single_word`); those with the id of a
    piece rename it. Raises CheckpointError.
    """
    model = _read(path)
    with library_errors(lambda error: CheckpointError(f"{path}: could not be converted to tokenizer.json: {error}.")):
        pieces = [added[at]["content"] if at in added else piece.piece for at, piece in enumerate(model.pieces)]
        tokenizer = _tokenizer(model, pieces)
        prefix = bool(settings.get("add_prefix_space", model.normalizer_spec.add_dummy_prefix))
        _set_steps(tokenizer, model, pieces, prefix)
        _add_tokens(tokenizer, model, pieces, added)
        named = _named(model.trainer_spec, pieces)
        _surround(tokenizer, named, settings)
    return tokenizer, named


def piece_id(path: Path, text: str) -> int | None:
    """The id of a piece. Raises CheckpointError."""
    return next((index for index, piece in enumerate(_read(path).pieces) if piece.piece == text), None)


def _read(path: Path) -> Any:
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise CheckpointError(
            f"{path}: to read it, sentencepiece and protobuf are needed: {install_command('build')} ({error})."
        ) from None
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    data = read_bytes(path, CheckpointError, max_bytes=_MAX_BYTES)
    try:
        model.ParseFromString(data)
    except Exception:  # protobuf's own error
        model.Clear()
    if not model.pieces:
        raise CheckpointError(
            f"{path}: not a SentencePiece model; the tokenizer could not be converted. Give the checkpoint's "
            "tokenizer.json, or download the file again."
        )
    if model.trainer_spec.model_type not in (_UNIGRAM, _BPE) or model.trainer_spec.treat_whitespace_as_suffix:
        raise CheckpointError(
            f"{path}: a SentencePiece model of characters or words, or with spaces as suffixes; only BPE and unigram "
            "models with spaces before words are read. Give the checkpoint's tokenizer.json."
        )
    return model


def _tokenizer(model: Any, pieces: list[str]) -> "Tokenizer":
    from tokenizers import Tokenizer, models

    if len(set(pieces)) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if piece in pieces[:index])
        raise ValueError(f"the piece {shown(twice)} appears twice")
    bytes_too = model.trainer_spec.byte_fallback
    kinds, scores = [piece.type for piece in model.pieces], [piece.score for piece in model.pieces]
    unknown = next((index for index, kind in enumerate(kinds) if kind == _UNKNOWN), None)
    if model.trainer_spec.model_type == _UNIGRAM:
        never = min(scores) - 100  # what a text may spell without being the piece
        scored = [
            (piece, score if kind == _NORMAL else 0.0 if kind == _USER_DEFINED else never)
            for piece, kind, score in zip(pieces, kinds, scores, strict=True)
        ]
        return Tokenizer(models.Unigram(scored, unknown, bytes_too))
    ids = {piece: index for index, piece in enumerate(pieces)}
    normal = {piece: scores[index] for piece, index in ids.items() if kinds[index] == _NORMAL}
    merges = [
        (piece[:at], piece[at:])
        for piece in sorted(normal, key=lambda piece: -normal[piece])
        for at in range(1, len(piece))
        if piece[:at] in normal and piece[at:] in normal
    ]
    return Tokenizer(
        models.BPE(
            vocab=ids,
            merges=merges,
            unk_token=None if unknown is None else pieces[unknown],
            fuse_unk=True,
            byte_fallback=bytes_too,
            ignore_merges=_USER_DEFINED in kinds,  # so that those, which are cut out, stay whole
        )
    )


def _set_steps(tokenizer: "Tokenizer", model: Any, pieces: list[str], prefix: bool) -> None:
    """Normalizer, in SentencePiece's order; cuts around user-defined pieces; decoder."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    rules = model.normalizer_spec
    steps: list[Any] = [normalizers.Precompiled(rules.precompiled_charsmap)] if rules.precompiled_charsmap else []
    if rules.remove_extra_whitespaces:  # of spaces alone
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if prefix:
        steps.append(normalizers.Prepend(" "))
    if rules.escape_whitespaces:
        steps.append(normalizers.Replace(" ", _SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    whole = [piece for piece, of in zip(pieces, model.pieces, strict=True) if of.type == _USER_DEFINED]
    if whole:
        pattern = "|".join(re.escape(piece) for piece in sorted(whole, key=len, reverse=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    text = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*text, *([decoders.Strip(" ", 1, 0)] if prefix else [])])


def _add_tokens(tokenizer: "Tokenizer", model: Any, pieces: list[str], added: Mapping[int, Mapping[str, Any]]) -> None:
    """Special tokens of the model, then those that other files append to it, whose ids must follow on."""
    from tokenizers import AddedToken

    kinds = enumerate(piece.type for piece in model.pieces)
    special = {at: {"content": pieces[at], "special": True} for at, kind in kinds if kind in (_UNKNOWN, _CONTROL)}
    appended = sorted(at for at in added if at >= len(pieces))
    if appended != list(range(len(pieces), len(pieces) + len(appended))):
        raise ValueError(f"added tokens should have the ids from {len(pieces)} on, found {shown(appended)}")
    for _, token in sorted({**special, **added}.items()):
        how = {name: bool(token.get(name, False)) for name in ("special", "lstrip", "rstrip", "single_word")}
        tokenizer.add_tokens([AddedToken(token["content"], normalized=False, **how)])


def _named(trained: Any, pieces: list[str]) -> dict[str, str]:
    """The special tokens that the model has."""
    ids = {"bos_token": trained.bos_id, "eos_token": trained.eos_id, "unk_token": trained.unk_id}
    return {name: pieces[index] for name, index in ids.items() if 0 <= index < len(pieces)}


def _surround(tokenizer: "Tokenizer", named: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """BOS before every text, as such models expect, unless the settings say otherwise; EOS where they ask for it."""
    from tokenizers import processors

    before = [named["bos_token"]] if settings.get("add_bos_token", True) and "bos_token" in named else []
    behind = [named["eos_token"]] if settings.get("add_eos_token", False) and "eos_token" in named else []
    if before or behind:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *behind],
            pair=[*before, "$A", *behind, *before, "$B", *behind],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in dict.fromkeys([*before, *behind])],
        )
