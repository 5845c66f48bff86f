"""A tokenizer that can spell everything: a token for each byte, and some for words."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

EOS = "<|end|>"


def write_byte_tokenizer(folder: Path) -> None:
    """Tokenizer files in `folder`: 256 bytes, `EOS`, and the merges of "the" and "name"."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("n", "a"), ("m", "e"), ("na", "me")]
    vocabulary = {token: at for at, token in enumerate([*alphabet, *map("".join, merges), EOS])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
