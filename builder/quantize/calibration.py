"""Calibration data: sequences of tokens that show a quantizer what a model's layers are given."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.checkpoint import Checkpoint
from ...checkpoint.config import max_positions
from ...errors import BuildError, EngineError, shown
from ...progress import Progress
from ...quantization.texts import TOPICS, calibration_text
from ...runtime.tokenizer import Tokenizer
from .config import QuantizeConfig

SAMPLED = "sampled from the model"
_TOPICS = "topics"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_MOST_BYTES = 1 << 30  # of a text file
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

    Raises BuildError for sequences longer than the model allows, a file that cannot be read, a data set that cannot be
    had, and for too little text, telling how many tokens were found and how many are needed.
    """
    limit = max_positions(checkpoint.config)
    if limit is not None and config.sequence_length > limit:
        raise BuildError(
            f"sequence_length {config.sequence_length} is more than the {limit} tokens that the model was made for; "
            f"ask for {limit} or less"
        )
    prefix = beginning(checkpoint, vocab_size)
    if config.calibration is None:
        from .sampling import sample

        tokens, source = sample(checkpoint, vocab_size, prefix, config, progress), SAMPLED
    else:
        with progress.task("calibration text"):
            texts, source = _texts(config.calibration, progress)
            tokens = _cut(_encoded(checkpoint, texts, config, vocab_size), prefix, config, source)
    return Calibration(tokens, source, config.seed)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The checkpoint's tokenizer; None without a tokenizer.json. Raises BuildError where that cannot be read."""
    if not (checkpoint.path / "tokenizer.json").exists():
        return None
    try:
        return Tokenizer(checkpoint.path)
    except EngineError as error:
        raise BuildError(str(error)) from None


def beginning(checkpoint: Checkpoint, vocab_size: int) -> list[int]:
    """What every sequence begins with: the tokens that the tokenizer puts before a text; without one, config.json's
    beginning-of-sequence token."""
    tokenizer = tokenizer_of(checkpoint)
    if tokenizer is not None:
        plain, whole = (tokenizer.encode("a", add_special_tokens=special) for special in (False, True))
        at = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
        return whole[:at]
    stated = checkpoint.config.get("bos_token_id")
    return [stated] if isinstance(stated, int) and 0 <= stated < vocab_size else []


def _texts(name: str, progress: Progress) -> tuple[Iterator[str], str]:
    """The texts of a source, and what to call it."""
    path = Path(name).expanduser()
    if name == _TOPICS:
        return iter([calibration_text()]), TOPICS
    if path.exists():
        return read_texts(path), path.name
    if _HUB_NAME.fullmatch(name):
        from .hub_data import fetch_texts

        return fetch_texts(name, progress), name
    raise BuildError(
        f"calibration: {shown(name)} is no file; give a text or JSONL file, 'topics', or a data set of the Hub "
        "(org/name)"
    )


def read_texts(path: Path) -> Iterator[str]:
    """A text file as a whole, or each line's text of a JSONL file: a string, or an object's "text"."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BuildError(f"{path}: {path.stat().st_size} bytes; at most {_MOST_BYTES} can be calibrated with")
        if path.suffix not in (".jsonl", ".json"):
            yield path.read_text(encoding="utf-8")
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _text_of(line, path, number)
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BuildError(f"{path}: no UTF-8 text: {error}") from error


def _text_of(line: str, path: Path, number: int) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{path}, line {number}: not valid JSON: {error}") from None
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise BuildError(f'{path}, line {number}: expected a string or an object with "text", found {shown(value)}')
    return text


def _encoded(checkpoint: Checkpoint, texts: Iterator[str], config: QuantizeConfig, vocab_size: int) -> np.ndarray:
    """The tokens of texts, one after another: of as many as are needed, and a few more to choose from."""
    tokenizer = tokenizer_of(checkpoint)
    if tokenizer is None:
        raise BuildError(
            f"{checkpoint.path} has no tokenizer.json, so text cannot calibrate it; leave the calibration out, to have "
            "tokens sampled from the model"
        )
    needed = config.samples * config.sequence_length * _SLACK
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


def _cut(tokens: np.ndarray, prefix: list[int], config: QuantizeConfig, source: str) -> np.ndarray:
    """Sequences that do not overlap, evenly over the text, in an order that the seed decides."""
    body = config.sequence_length - len(prefix)
    pieces = len(tokens) // body
    if pieces < config.samples:
        raise BuildError(
            f"calibration: {source} has {len(tokens)} tokens, but {config.samples} sequences of "
            f"{config.sequence_length} need {config.samples * body}; give more text, or ask for fewer or shorter "
            "sequences (samples, sequence_length)"
        )
    chosen = np.random.default_rng(config.seed).permutation(pieces)[: config.samples]
    bodies = tokens[: pieces * body].reshape(pieces, body)[chosen]
    return np.hstack([np.tile(np.array(prefix, np.int64), (config.samples, 1)), bodies])
