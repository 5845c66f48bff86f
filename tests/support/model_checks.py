"""How a tiny random model in an engine, or as a network, compares with Transformers."""

import inspect
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evaluate_network import evaluate
from step_engine import StepEngine
from tiny_configs import VOCABULARY, tiny_config
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from enginesmith import LLM, SamplingParams
from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.lower import lower
from enginesmith.builder.passes.pipeline import optimize
from enginesmith.builder.trace.trace import trace
from enginesmith.errors import EnginesmithError
from enginesmith.plugins.discovery import kernels
from enginesmith.runtime.engine_dir import open_engine
from enginesmith.units import Bytes

FP32_BAR = 1e-4  # of the logits' spread
NEW_TOKENS, BLOCK = 32, 16
SIZES = {"max_seq_len": 96, "max_batch_size": 96, "max_num_tokens": 96, "kv_block_size": BLOCK}
SEQUENCES = [np.random.default_rng(n).integers(5, VOCABULARY, n).tolist() for n in (41, 18, 1)]


class NoTinyModelError(Exception):
    """Transformers makes no model of a tiny config: it does not hold together."""


def random_model(config: Any) -> Any:
    """A tiny random model, in which nothing is zero that a checkpoint stores."""
    torch.manual_seed(0)
    model = class_of(config)._from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for _, tensor in stored_tensors(model):
            tensor.add_(torch.randn_like(tensor) * (0.2 if tensor.ndim == 1 else 0.05))
    return model.eval()


def class_of(config: Any) -> Any:
    """The class of a whole checkpoint, of which Transformers may list its text part alone as a causal model."""
    kinds: Any = (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    classes = [mapping[type(config)] for mapping in kinds if type(config) in mapping]
    return min(classes, key=lambda found: found.config_class is not type(config))


def stored_tensors(model: Any) -> Iterable[tuple[str, torch.Tensor]]:
    stored = model.state_dict()
    yield from model.named_parameters()
    yield from ((name, each) for name, each in model.named_buffers() if name in stored and each.is_floating_point())


def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    """As `generate` calls the model: some count positions from elsewhere if not told."""
    options: dict[str, Any] = {"use_cache": False}
    if "position_ids" in inspect.signature(model.forward).parameters:
        options["position_ids"] = torch.arange(len(tokens))[None]
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens]), **options).logits[0].numpy()


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.ptp(expected))


def idle(model: Any) -> list[str]:
    """Stored tensors that do not matter to the logits: their loss would go unseen."""
    expected, found = logits_of(model, SEQUENCES[0]), []
    for name, tensor in stored_tensors(model):
        kept = tensor.detach().clone()
        with torch.no_grad():
            tensor.zero_()
            if distance(logits_of(model, SEQUENCES[0]), expected) < 10 * FP32_BAR:
                found.append(name)
            tensor.copy_(kept)
    return found


def generated(model: Any, tokens: list[int]) -> tuple[list[int], list[str]]:
    """Transformers' greedy tokens, by its own cache where that says what whole prompts do, and what is wrong there."""
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None}
    said = model.generate(torch.tensor([tokens]), pad_token_id=0, **options)[0].tolist()
    rows = logits_of(model, said[:-1])[len(tokens) - 1 :]
    gap = rows.max(-1) - rows[np.arange(len(rows)), said[len(tokens) :]]
    if (gap <= FP32_BAR * np.ptp(rows)).all():
        return said[len(tokens) :], []
    whole = list(tokens)
    for _ in range(NEW_TOKENS):
        whole.append(int(logits_of(model, whole)[-1].argmax()))
    return whole[len(tokens) :], ["greedy tokens of its cache are others"]


def differing(engine: StepEngine, sequences: Sequence[list[int]]) -> list[str]:
    """What of chunks and company changes the bits of logits."""
    wrong, alone = [], [engine.run(tokens, len(tokens)) for tokens in sequences]
    first = sequences[0]
    if not all(np.array_equal(engine.run(first, *chunks), alone[0]) for chunks in ((7, 34), (38, 1, 1, 1))):
        wrong.append("chunks change bits")
    together = [engine.add(tokens) for tokens in sequences]
    engine.step(*((each, min(len(each.tokens), 15)) for each in together))
    engine.step(*((each, len(each.tokens) - 15) for each in together if len(each.tokens) > 15))
    if not all(np.array_equal(np.stack(each.logits), a) for each, a in zip(together, alone, strict=True)):
        wrong.append("company changes bits")
    for each in together:
        engine.remove(each)
    return wrong


def preempted(folder: Path) -> tuple[int, bool]:
    """How many requests had to give way to others, and whether all say what they say alone."""
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    with LLM(folder, prefix_cache=False) as llm:
        alone = [llm.generate([tokens], params)[0].outputs[0].token_ids for tokens in SEQUENCES]
    manifest = open_engine(folder).manifest
    states = len(SEQUENCES) * manifest.state.slot_bytes  # which take half of the room at most
    room = max(7 * sum(group.bytes_per_block for group in manifest.kv_cache.groups) + states, 2 * states)
    options: dict[str, Any] = {
        "capacity_policy": "max_utilization",
        "prefix_cache": False,
        "max_num_seqs": len(SEQUENCES),
    }
    with LLM(folder, kv_cache_memory=Bytes(room), **options) as llm:
        outputs = llm.generate(SEQUENCES, params)
    same = all(list(output.outputs[0].token_ids) == list(a) for output, a in zip(outputs, alone, strict=True))
    return sum(output.metrics.num_preemptions for output in outputs), same


def made_checkpoint(model_type: str, folder: Path) -> Any:
    """A random model that was written as a checkpoint, and read again."""
    try:
        model = random_model(tiny_config(model_type))
        model.save_pretrained(folder)
        options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
        return type(model).from_pretrained(folder, **options).eval()
    except Exception as error:  # of Transformers, on a config that does not hold together
        raise NoTinyModelError(f"{type(error).__name__}: {error}") from error


def check_engine(model_type: str, folder: Path) -> dict[str, Any]:
    """What families.json says of a type."""
    model = made_checkpoint(model_type, folder / "checkpoint")
    build(folder / "checkpoint", folder / "engine", BuildConfig(dtype="fp32", check=False, **SIZES))
    expected = [logits_of(model, tokens) for tokens in SEQUENCES]
    engine = StepEngine(folder / "engine")
    try:
        found = [engine.run(tokens, len(tokens)) for tokens in SEQUENCES]
        said, notes = generated(model, SEQUENCES[0])
        worst = max(map(distance, found, expected))
        wrong = ["logits differ"] if not worst < FP32_BAR else []
        wrong += ["greedy tokens differ"] if engine.greedy(SEQUENCES[0], NEW_TOKENS) != said else []
        wrong += differing(engine, SEQUENCES)
        manifest = engine.engine.manifest
        caches = _caches([group.window for group in manifest.kv_cache.groups], manifest.state.slot_bytes > 0)
    finally:
        engine.close()
    preemptions, same = preempted(folder / "engine")
    wrong += [] if same else ["preemption changes tokens"]
    return {
        "how": "engine", "class": type(model).__name__, "outcome": "wrong" if wrong else "agrees",
        "reason": ", ".join(wrong), "distance": worst, "spread": float(np.ptp(expected[0])), "notes": notes,
        "idle": len(idle(model)), "preemptions": preemptions, "cache": caches,
    }  # fmt: skip


def check_network(model_type: str, folder: Path) -> dict[str, Any]:
    """What families.json says of a type that no engine was compiled for."""
    model = made_checkpoint(model_type, folder)
    network = trace(json.loads((folder / "config.json").read_text()), max_seq_len=SIZES["max_seq_len"])
    optimize(network)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    found = evaluate(network, state, SEQUENCES)
    expected = np.concatenate([logits_of(model, tokens) for tokens in SEQUENCES])
    program = lower(network, BuildConfig(dtype="fp32"), kernels("cpu"))
    worst = distance(found, expected)
    agrees = worst < FP32_BAR
    return {
        "how": "network", "class": type(model).__name__, "outcome": "agrees" if agrees else "wrong",
        "reason": "" if agrees else "logits differ", "distance": worst, "spread": float(np.ptp(expected)), "notes": [],
        "cache": _caches([group.window for group in program.groups], bool(program.states)),
    }  # fmt: skip


def _caches(windows: Sequence[int], has_state: bool) -> list[str]:
    kinds = [f"window of {window}" if window else "full" for window in windows]
    return [*kinds, "state"] if has_state else kinds


def check_quantized(model_type: str, folder: Path) -> dict[str, Any]:
    """Of a type that agrees: what families.json says of it quantized."""
    random_model(tiny_config(model_type)).save_pretrained(folder / "checkpoint")
    config = BuildConfig(weights="int8", kv_cache="int8", **SIZES)
    try:
        report = build(folder / "checkpoint", folder / "engine", config)
    except EnginesmithError as error:
        return {"quantized": {"outcome": "wrong", "reason": str(error)}}
    engine = StepEngine(folder / "engine")
    try:
        wrong = differing(engine, SEQUENCES)
    finally:
        engine.close()
    kl = report.check.kl if report.check else None
    return {"quantized": {"outcome": "wrong" if wrong else "agrees", "reason": ", ".join(wrong), "kl": kl}}
