"""An engine's vocabulary as llguidance takes it: the bytes that each token adds to the text that users see."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ...errors import EnginesmithError, RequestError
from ...extras import install_command
from ..tokenizer import NoTokenizer, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer


_LEAD = "\x02"  # no tokenizer joins it with what follows


class _Tokens:
    """The attributes that llguidance's TokenizerWrapper reads, and how the model was taught to spell a text.

    Where only one text can follow, llguidance allows the tokens of this spelling alone.
    """

    bos_token_id = None
    vocabulary: "LLTokenizer"

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, special: Collection[int], eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self.tokens = tokenizer.token_bytes(vocab_size)
        self.special_token_ids = sorted(token for token in special if token < vocab_size)
        self.eos_token_id = eos_token_id
        self._special = frozenset(special)

    def __call__(self, text: str) -> list[int]:
        """Tokens whose bytes are those of a text that stands behind another one."""
        if not isinstance(text, str):
            raise TypeError("takes text")  # TokenizerWrapper asks
        try:
            token_ids = self._tokenizer.encode(text, add_special_tokens=False)
            if not self._spells(token_ids, text):  # some put a space before
                token_ids = self._tokenizer.encode(_LEAD + text, add_special_tokens=False)
                token_ids = token_ids[self._length_of_lead(token_ids) :]
            if self._spells(token_ids, text):
                return token_ids
        except EnginesmithError:
            pass
        token_ids = self.vocabulary.greedy_tokenize(text)
        while not text.encode().startswith(self._bytes(token_ids)):  # what no token spells was left out
            del token_ids[len(token_ids) // 2 :]
        return token_ids

    def _spells(self, token_ids: Sequence[int], text: str) -> bool:
        if any(token >= len(self.tokens) or token in self._special for token in token_ids):
            return False
        return self._bytes(token_ids) == text.encode()

    def _bytes(self, token_ids: Sequence[int]) -> bytes:
        return b"".join(self.tokens[token] for token in token_ids)

    def _length_of_lead(self, token_ids: Sequence[int]) -> int:
        """How many tokens spell the lead; none where the tokenizer has tokens for it that the model lacks."""
        return next((at for at, token in enumerate(token_ids, 1) if self._ends_lead(token)), 0)

    def _ends_lead(self, token: int) -> bool:
        return token < len(self.tokens) and self.tokens[token].endswith(_LEAD.encode())


def make_vocabulary(tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Collection[int]) -> "LLTokenizer":
    """Takes a fraction of a second. Raises RequestError where outputs of this engine cannot be constrained."""
    try:
        from llguidance import LLTokenizer, TokenizerWrapper
    except ImportError:
        raise RequestError(
            "structured_outputs needs the package llguidance, which is not installed: " + install_command("structured")
        ) from None
    if isinstance(tokenizer, NoTokenizer):
        raise RequestError("structured_outputs: this engine has no tokenizer, its checkpoint had none")
    if not eos_token_ids:
        raise RequestError("structured_outputs: this model has no end-of-sequence token to end an output with")
    eos = sorted(eos_token_ids)
    tokens = _Tokens(tokenizer, vocab_size, tokenizer.special_ids | set(eos), eos[0])
    tokens.vocabulary = LLTokenizer(TokenizerWrapper(tokens), eos_token=eos)
    return tokens.vocabulary
