"""Small vocabularies as GGUF files, made of a probing text, so that where a text is cut shows in its tokens."""

from pathlib import Path
from typing import Any

from gguf_files import write_vocabulary
from tokenizers.pre_tokenizers import ByteLevel

# fmt: off
PROBE = (
    "Don't STOP!!  I'LL pay $1234567.50 (or 3.14) for it's   x_y = a+b;\r\n\n\tif(n<10){return ~`x`|^2;}  # ½²\n"
    " naïve Straße ЖжЖ Λελ 日本語のテキスト、漢字。 한국어 हिन्दी ไทย\u00a0«ok» 😀😀 e\u0301a—b… /path/to\n \n  end \n"
)
# fmt: on


def byte_level_vocabulary(path: Path, pre: str) -> Path:
    """Merges join everything in PROBE with what follows it, whatever that is: only cuts keep them apart."""
    text = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(PROBE)[0][0]
    tokens = sorted(ByteLevel.alphabet())
    merges: list[str] = []
    for start in (0, 1):
        pieces = list(text[start:])
        while len(pieces) > 1:
            pairs = [tuple(pieces[at : at + 2]) for at in range(0, len(pieces) - 1, 2)]
            merges += [" ".join(pair) for pair in pairs]
            pieces = ["".join(pair) for pair in pairs] + pieces[2 * len(pairs) :]
            tokens += [piece for piece in pieces if len(piece) < 17]
            if len(pieces[0]) >= 8:
                break
    tokens = list(dict.fromkeys(tokens))
    known = set(tokens)
    merges = [merge for merge in dict.fromkeys(merges) if merge.replace(" ", "") in known]
    tokens.append("<|bos|>")
    return write_vocabulary(
        path,
        "gpt2",
        tokens,
        {
            "pre": pre,
            "merges": merges,
            "token_type": [1] * (len(tokens) - 1) + [3],
            "bos_token_id": len(tokens) - 1,
            "eos_token_id": len(tokens) - 1,
        },
    )


def sentencepiece_vocabulary(path: Path, **metadata: Any) -> Path:
    """Twenty pieces with scores, and a token for every byte. `metadata`: more keys of `tokenizer.ggml.`."""
    pieces = ["▁", "a", "b", "c", "ab", "▁a", "▁ab", "▁▁", "bc", "abc", "é", "\n", "▁▁▁", "ca"]
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *pieces,
        "<|end|>",
        "<tool>",
        "<|endoftext|>",
    ]
    normal = len(pieces)
    return write_vocabulary(
        path,
        "llama",
        tokens,
        {
            "scores": [0.0] * 259 + [-float(index) for index in range(normal)] + [0.0] * 3,
            "token_type": [2, 3, 3] + [6] * 256 + [1] * normal + [3, 4, 3],
            **metadata,
        },
    )
