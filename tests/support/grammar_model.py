"""What stands for a model in tests of structured output."""

import ctypes
import random
from pathlib import Path

import numpy as np

from enginesmith.runtime.structured_output.compiler import GrammarCompiler
from enginesmith.runtime.structured_output.constraint import GrammarConstraint
from enginesmith.runtime.tokenizer import Tokenizer, load_tokenizer

VOCAB = 310  # more than the tokenizers have, and no multiple of 32


class GrammarModel:
    """What stands for a model: a tokenizer, one of its end-of-sequence tokens, a compiler."""

    def __init__(self, folder: Path, eos: str) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        (self.eos,) = self.tokenizer.encode(eos, add_special_tokens=False)
        self.compiler = GrammarCompiler(self.tokenizer, VOCAB, {self.eos})
        self.bytes = self.tokenizer.token_bytes(VOCAB)

    def allowed(self, constraint: GrammarConstraint) -> np.ndarray:
        """Ids that may come next, ascending."""
        words = ctypes.string_at(constraint.mask(), -(-VOCAB // 32) * 4)
        return np.flatnonzero(np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little"))

    def accepts(self, constraint: GrammarConstraint, text: str) -> bool:
        """Whether a text may be the whole output, spelt byte by byte."""
        for byte in text.encode():
            try:
                constraint.accept(self.bytes.index(bytes([byte])))
            except Exception:
                return False
        return self.eos in self.allowed(constraint)

    def walk(self, constraint: GrammarConstraint, draw: random.Random, most: int = 60) -> tuple[list[int], bool]:
        """Tokens drawn evenly among those allowed, and whether they ended by themselves."""
        tokens: list[int] = []
        while len(tokens) < most:
            allowed = self.allowed(constraint)
            token = self.eos if self.eos in allowed and draw.random() < 0.5 else int(draw.choice(allowed))
            if token == self.eos:
                return tokens, True
            constraint.accept(token)
            tokens.append(token)
        return tokens, False

    def text(self, tokens: list[int]) -> str:
        return b"".join(self.bytes[token] for token in tokens).decode()
