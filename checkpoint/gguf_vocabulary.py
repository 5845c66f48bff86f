"""The vocabulary of a GGUF file: its tokens, their kinds, and which of them have a part to play."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..errors import CheckpointError, shown
from .gguf_file import GgufFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF's kinds of tokens

# Keys of GGUF's special tokens, after `tokenizer.ggml.`, older names last; and the texts by which llama.cpp knows such
# a token where the file does not name it (llama_vocab::impl::load in src/llama-vocab.cpp).
_ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bos": (("bos_token_id",), ()),
    "eos": (("eos_token_id",), ()),
    "unk": (("unknown_token_id",), ()),
    "pad": (("padding_token_id",), ()),
    "eot": (
        ("eot_token_id",),
        (
            *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"),
            *("_<EOT>", "[EOT]", "<\uff5cend▁of▁sentence\uff5c>", "<end_of_utterance>"),
        ),
    ),
    "eom": (("eom_token_id",), ("<|eom_id|>",)),
    "fim_pre": (
        ("fim_pre_token_id", "prefix_token_id"),
        (
            *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim▁begin\uff5c>", "<PRE>", "▁<PRE>"),
            *("<|code_prefix|>", "<|prefix|>"),
        ),
    ),
    "fim_suf": (
        ("fim_suf_token_id", "suffix_token_id"),
        (
            *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim▁hole\uff5c>", "<SUF>", "▁<SUF>"),
            *("<|code_suffix|>", "<|suffix|>"),
        ),
    ),
    "fim_mid": (
        ("fim_mid_token_id", "middle_token_id"),
        (
            *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim▁end\uff5c>", "<MID>", "▁<MID>"),
            *("<|code_middle|>", "<|middle|>"),
        ),
    ),
    "fim_pad": (("fim_pad_token_id",), ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")),
    "fim_rep": (("fim_rep_token_id",), ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")),
    "fim_sep": (("fim_sep_token_id",), ("<|file_sep|>",)),
}
_ENDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
    *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend▁of▁sentence\uff5c>", "[e~["),
)
_SHOWN_IN_HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # OpenAI's format of chats
# The ids of `tokenizer.ggml.model`'s special tokens where the file does not name them.
_DEFAULTS = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "gpt2": {"bos": 11, "eos": 11},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}
_WITHOUT_BOS = ("chatglm-bpe", "glm4", "glm5")  # values of `tokenizer.ggml.pre` that take that default back


@dataclass(frozen=True)
class Vocabulary:
    """`tokens`, their `scores` (0 where the file has none) and `kinds`, by id. `roles`: ids by llama.cpp's names of
    them (bos, eos, eot, ...). `ends`: every token that ends a generation, the file's own EOS first.
    """

    source: GgufFile
    model: str
    tokens: list[str]
    scores: list[float]
    kinds: list[int]
    roles: dict[str, int]
    ends: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        ids = {token: index for index, token in enumerate(self.tokens)}
        object.__setattr__(self, "ends", self._find_ends(ids))
        for text in _SHOWN_IN_HARMONY:
            if text in ids:
                self.kinds[ids[text]] = USER_DEFINED

    @property
    def ids(self) -> dict[str, int]:
        """Token to id."""
        return {token: index for index, token in enumerate(self.tokens)}

    def stated(self, key: str, kind: type, default: Any) -> Any:
        """A value of `tokenizer.ggml.`. Raises CheckpointError where it is of another type."""
        value = self.source.metadata.get(f"tokenizer.ggml.{key}", default)
        if type(value) is not kind:
            raise CheckpointError(
                f"{self.source.path}: tokenizer.ggml.{key} should be of type {kind.__name__}, found {shown(value)}."
            )
        return value

    def _find_ends(self, ids: dict[str, int]) -> tuple[int, ...]:
        listed = [index for index in self.source.array("tokenizer.ggml.eos_token_ids") if index in range(len(ids))]
        named = [self.roles[role] for role in _ENDS if role in self.roles]
        known = [ids[text] for text in _END_TEXTS if text in ids]
        for index in known:
            self.kinds[index] = CONTROL
        ends = dict.fromkeys([*named[:1], *listed, *named[1:], *sorted(known)])
        texts = {self.tokens[index] for index in ends}
        if "<|end|>" in texts and (texts >= {"<|return|>", "<|call|>"} or texts >= {"<|calls|>", "<|flush|>"}):
            del ends[ids["<|end|>"]]  # it ends a message there, and more messages follow
            self.kinds[ids["<|end|>"]] = USER_DEFINED
        if "</s>" in texts and texts & {"<|tool_response>", "<|plamo:eos|>"}:
            del ends[ids["</s>"]]  # a tag of HTML there
            self.kinds[ids["</s>"]] = NORMAL
        return tuple(ends)


def read_vocabulary(source: GgufFile) -> Vocabulary:
    """Raises CheckpointError where the file has no vocabulary, tokens twice, or lists of other lengths."""
    model = source.metadata.get("tokenizer.ggml.model")
    tokens = source.array("tokenizer.ggml.tokens")
    if not isinstance(model, str) or not tokens or not isinstance(tokens[0], str):
        raise CheckpointError(
            f"{source.path}: holds no tokenizer (tokenizer.ggml.model is {shown(model)}, of {len(tokens)} tokens)."
        )
    tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]  # as llama.cpp calls them
    if len(set(tokens)) != len(tokens):
        twice = next(token for token, count in Counter(tokens).items() if count > 1)
        raise CheckpointError(f"{source.path}: the token {shown(twice)} appears twice in tokenizer.ggml.tokens.")
    kinds = _numbers(source, "token_type", NORMAL, len(tokens))
    roles = _roles(source, model, tokens, kinds)
    return Vocabulary(source, model, tokens, _numbers(source, "scores", 0.0, len(tokens)), kinds, roles)


def _numbers(source: GgufFile, key: str, default: Any, count: int) -> list[Any]:
    """A number for each token. Longer lists are cut, as llama.cpp does."""
    values = source.array(f"tokenizer.ggml.{key}")
    if not values:
        return [default] * count
    if len(values) < count or not isinstance(values[0], int | float):
        raise CheckpointError(f"{source.path}: tokenizer.ggml.{key} has {len(values)} numbers for {count} tokens.")
    return values[:count]


def _roles(source: GgufFile, model: str, tokens: list[str], kinds: list[int]) -> dict[str, int]:
    """An id that is out of range counts as not stated, as in llama.cpp."""
    ids = {token: index for index, token in enumerate(tokens)}
    defaults = dict(_DEFAULTS.get(model, {}))
    if source.metadata.get("tokenizer.ggml.pre") in _WITHOUT_BOS:
        defaults.pop("bos", None)
    roles: dict[str, int] = {}
    for role, (keys, texts) in _ROLES.items():
        stated = [source.metadata.get(f"tokenizer.ggml.{key}") for key in keys]
        found = next((index for index in (*stated, defaults.get(role)) if index in range(len(tokens))), None)
        if found is None:
            found = min((ids[text] for text in texts if text in ids), default=None)
            if found is not None:
                kinds[found] = CONTROL
        if found is not None:
            roles[role] = int(found)
    return roles
