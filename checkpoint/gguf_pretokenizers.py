"""What llama.cpp's values of `tokenizer.ggml.pre` stand for: how a text is cut before BPE merges within the pieces.

Patterns are applied one after the other, each within the pieces of those before it; what lies between two matches is a
piece too. They are those that llama.cpp states (llm_tokenizer_bpe in src/llama-vocab.cpp); where it only approximates
a tokenizer's own pattern, for want of a regular expression engine that knows Unicode's classes, the tokenizer's own.
"""

from dataclasses import dataclass

_ENDINGS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_WORDS = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"  # after the digits: as GPT-4 cuts, with fewer or more of them
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+"
_CAPITALS, _SMALLS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALLS}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALLS}*")
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_GPT4O = rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _SPACES,
)
# Letters with case, as the tokenizer of DeepSeek LLM lists them: those of Unicode 11, less symbols of mathematics.
_DEEPSEEK_LETTERS = (
    r"\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}"
    r"\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}"
    r"\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}"
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}"
    r"\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}"
    r"\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}"
    r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}"
    r"\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}"
    r"\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}"
    r"\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}"
)
_CJK_AND_HANGUL = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"


@dataclass(frozen=True)
class Pretokenizer:
    """`whole_words`: a piece that is a token stays one, whatever the merges say (llama.cpp's ignore_merges).
    `add_bos`: whether BOS begins a text where the file does not say. `bytes`: pieces are merged as GPT-2's letters of
    bytes; if not, as characters, with spaces written ▁.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    bytes: bool = True


def _table(*entries: tuple[str, Pretokenizer]) -> dict[str, Pretokenizer]:
    return {name: pretokenizer for names, pretokenizer in entries for name in names.split()}


PRETOKENIZERS = _table(
    (
        "default",
        Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    ),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Pretokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    ),
    ("dbrx smaug-bpe chatglm-bpe", Pretokenizer((_LLAMA3,))),
    ("glm4 glm5", Pretokenizer((_LLAMA3,), whole_words=True)),
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4 modern-bert jina-es "
        "jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
        Pretokenizer((_GPT2,)),
    ),
    (
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        Pretokenizer((r"\p{N}", _GPT2)),
    ),
    ("falcon", Pretokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        Pretokenizer((_QWEN2,)),
    ),
    ("qwen35", Pretokenizer((_QWEN35,))),
    ("laguna", Pretokenizer((r"[^\n]+|[\n]+", _QWEN2))),
    (
        "deepseek-llm",
        Pretokenizer(
            (
                "[\r\n]",
                rf"\s?[{_DEEPSEEK_LETTERS}]+",
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
                r"\s+$",
                _CJK_AND_HANGUL,
                r"\p{N}+",
            )
        ),
    ),
    ("deepseek-coder", Pretokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_HANGUL, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Pretokenizer(_DEEPSEEK3)),
    ("tekken", Pretokenizer((_TEKKEN,), whole_words=True, add_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", Pretokenizer((_GPT4O,))),
    ("tiny_aya cohere2moe", Pretokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))),
    ("poro-chat bloom gpt3-finnish", Pretokenizer((_BLOOM,))),
    ("viking", Pretokenizer((_BLOOM, r"\p{N}"))),
    ("superbpe", Pretokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))"))),
    (
        "bailingmoe bailingmoe2 llada-moe",
        Pretokenizer(
            (
                r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
                rf"{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "seed-coder",
        Pretokenizer((rf"{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    ),
    (
        "minicpm5",
        Pretokenizer((r"\p{N}{1,3}", rf"{_WORDS}|\p{{N}}+|{_SYMBOLS}|{_SPACES}"), whole_words=True),
    ),
    ("gemma4", Pretokenizer((r"[^\n]+|[\n]+",), add_bos=True, bytes=False)),
    ("sarvam-moe", Pretokenizer((r"[^\n]+|[\n]+",), bytes=False)),
)
