"""Calibration data: sequences of tokens that show a quantizer what a model's layers are given."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.checkpoint import Checkpoint
from ...checkpoint.config import max_positions
from ...errors import BuildError, shown
from ...measure.texts import TOPICS, calibration_text
from ...progress import Progress
from ...runtime.tokenizer import NoTokenizer, Tokenizer
from ..checkpoint_tokenizer import tokenizer_of
from .quantize_options import QuantizeConfig
from .text_files import read_texts

SAMPLED = "sampled from the model"
_TOPICS = "topics"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_LENGTH = 256
_SLACK = 1.25  # texts are read until they give so many times the tokens that are needed


@dataclass(frozen=True)
class Calibration:
    """`tokens`: int64 [samples, sequence_length]. `source` names where they come from."""

    tokens: np.ndarray
    source: str
    seed: int

    def facts(self) -> dict[str, Any]:
        """What the checkpoint records."""
        samples, length = self.tokens.shape
        return {
            "source": self.source,
            "seed": self.seed,
            "samples": samples,
            "sequence_length": length,
            "tokens": samples * length,
        }


def calibrate(checkpoint: Checkpoint, vocab_size: int, config: QuantizeConfig, progress: Progress) -> Calibration:
    """The sequences that a config asks for: the same for the same seed.

    Raises BuildError for a stated length of more than the model allows, a file that cannot be read, a data set that
    cannot be had, and for too little text, telling how many tokens were found and how many are needed.
    """
    shape = config.samples, _length(checkpoint, config)
    tokenizer = tokenizer_of(checkpoint.path)
    prefix = beginning(checkpoint, tokenizer, vocab_size)
    if config.calibration is None:
        from .sampling import sample

        tokens, source = sample(checkpoint, tokenizer, vocab_size, prefix, shape, config.seed, progress), SAMPLED
    else:
        with progress.task("calibration text"):
            texts, source = _texts(config.calibration, progress)
            needed = int(config.samples * shape[1] * _SLACK)
            found = _encoded(checkpoint, tokenizer, texts, needed, vocab_size)
            tokens = _cut(found, prefix, shape, config.seed, source)
    return Calibration(tokens, source, config.seed)


def _length(checkpoint: Checkpoint, config: QuantizeConfig) -> int:
    """How many tokens a sequence has."""
    asked, limit = config.sequence_length, max_positions(checkpoint.config)
    if asked is None:
        return _LENGTH if limit is None else min(_LENGTH, limit)
    if limit is not None and asked > limit:
        raise BuildError(
            f"sequence_length {asked} is more than the {limit} tokens that the model was made for; ask for {limit} or "
            "less"
        )
    return asked


def beginning(checkpoint: Checkpoint, tokenizer: Tokenizer, vocab_size: int) -> list[int]:
    """What every sequence begins with: the tokens that the tokenizer puts before a text; without one, config.json's
    beginning-of-sequence token."""
    if not isinstance(tokenizer, NoTokenizer):
        return tokenizer.beginning
    stated = checkpoint.config.get("bos_token_id")
    return [stated] if isinstance(stated, int) and 0 <= stated < vocab_size else []


def _texts(name: str, progress: Progress) -> tuple[Iterator[str], str]:
    """The texts of a source, and what to call it."""
    path = Path(name).expanduser()
    if name == _TOPICS:
        return iter([calibration_text()]), TOPICS
    if name and path.exists():
        return read_texts(path), path.name
    if _HUB_NAME.fullmatch(name):
        from .hub_data import fetch_texts

        return fetch_texts(name, progress), name
    raise BuildError(
        f"calibration: {shown(name)} is no file; give a text or JSONL file, 'topics', or a data set of the Hub "
        "(org/name)"
    )


def _encoded(
    checkpoint: Checkpoint, tokenizer: Tokenizer, texts: Iterator[str], needed: int, vocab_size: int
) -> np.ndarray:
    """The tokens of texts, one after another: of as many as are needed, and a few more to choose from."""
    if isinstance(tokenizer, NoTokenizer):
        raise BuildError(
            f"{checkpoint.path} has no tokenizer, so text cannot calibrate it; leave the calibration out, to have "
            "tokens sampled from the model"
        )
    found: list[int] = []
    for text in texts:
        found += tokenizer.encode(text, add_special_tokens=False)
        if len(found) >= needed:
            break
    tokens = np.array(found, np.int64)
    if len(tokens) and tokens.max() >= vocab_size:
        raise BuildError(
            f"{checkpoint.path}: its tokenizer gives token {tokens.max()}, but the model's vocabulary has {vocab_size}"
        )
    return tokens


def _cut(tokens: np.ndarray, prefix: list[int], shape: tuple[int, int], seed: int, source: str) -> np.ndarray:
    """Sequences [samples, length] that do not overlap, evenly over the text, in an order that the seed decides."""
    samples, length = shape
    body = length - len(prefix)
    pieces = len(tokens) // body
    if pieces < samples:
        raise BuildError(
            f"calibration: {source} has {len(tokens)} tokens, but {samples} sequences of {length} need "
            f"{samples * body}; give more text, or ask for fewer or shorter sequences (samples, sequence_length)"
        )
    chosen = np.random.default_rng(seed).permutation(pieces)[:samples]
    bodies = tokens[: pieces * body].reshape(pieces, body)[chosen]
    return np.hstack([np.tile(np.array(prefix, np.int64), (samples, 1)), bodies])
