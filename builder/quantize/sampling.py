"""Calibration data without data: text that the model itself writes.

Liu et al., "LLM-QAT: Data-Free Quantization Aware Training for Large Language Models" (2023) draw the first token at
random and sample the rest from the model, whose own outputs are closest to what it was trained on.
"""

import hashlib

import numpy as np

from ...atomic import temporary_folder
from ...checkpoint.checkpoint import Checkpoint
from ...kept import find, keep
from ...progress import Progress
from ...runtime.llm import LLM
from ...runtime.sampling_params import SamplingParams
from ...runtime.tokenizer import Tokenizer
from ..build_options import BuildConfig
from ..compile import compile_engine
from ..fingerprint import code_digest, digest, stamp

_AT_ONCE = 64
_FILE = "tokens.npy"


def sample(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    vocab_size: int,
    prefix: list[int],
    shape: tuple[int, int],
    seed: int,
    progress: Progress,
) -> np.ndarray:
    """int64 of `shape`, [samples, length]: after `prefix` a random token, then what the model goes on with.

    An int8 engine is built in a temporary folder and samples at temperature 1, past ends of sequences, with a seed for
    each sequence. The tokens are cached. Raises what a build raises.
    """
    made_of = [*stamp(checkpoint.path), *shape, prefix, seed, code_digest()]
    name = digest(made_of)[:32]
    if (folder := find("calibration", name)) is not None:
        return np.load(folder / _FILE, allow_pickle=False)
    tokens = _generate(checkpoint, _prompts(tokenizer, vocab_size, prefix, shape, seed), shape[1], seed, progress)
    keep("calibration", name, lambda folder: np.save(folder / _FILE, tokens, allow_pickle=False))
    return tokens


def _prompts(
    tokenizer: Tokenizer, vocab_size: int, prefix: list[int], shape: tuple[int, int], seed: int
) -> list[list[int]]:
    plain = [token for token in range(vocab_size) if token not in tokenizer.special_ids]
    samples, length = shape
    drawn = np.random.default_rng(seed).choice(plain, samples)
    room = length - 1  # at least one token is generated
    return [[*prefix, int(token)][:room] for token in drawn]


def _generate(
    checkpoint: Checkpoint, prompts: list[list[int]], length: int, seed: int, progress: Progress
) -> np.ndarray:
    at_once = min(len(prompts), _AT_ONCE)
    options = BuildConfig(
        weights="int8",
        max_batch_size=at_once,
        max_seq_len=length,
        max_num_tokens=max(at_once, _AT_ONCE),
        check=False,
    )
    params = [
        SamplingParams(max_tokens=length - len(prompt), ignore_eos=True, seed=_seed(seed, number))
        for number, prompt in enumerate(prompts)
    ]
    tokens: list[list[int]] = []
    with temporary_folder() as folder:
        engine = folder / "engine"
        compile_engine(checkpoint.path, engine, options, progress)
        with progress.task("calibration text", len(prompts)) as task, LLM(engine, verify=False) as llm:
            for first in range(0, len(prompts), at_once):
                batch = slice(first, first + at_once)
                outputs = llm.generate(prompts[batch], params[batch])
                tokens += [[*output.prompt_token_ids, *output.outputs[0].token_ids] for output in outputs]
                task.advance(len(outputs))
    return np.array(tokens, np.int64)


def _seed(seed: int, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:8], "little")
