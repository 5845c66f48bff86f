"""Evaluation of tiny models, beside a plain sliding-window loop over Transformers."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from char_tokenizer import write_char_tokenizer

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.evaluate.evaluate import _window, evaluate
from enginesmith.errors import EvaluationError

TEXT = "the quick brown fox jumps over the lazy dog. " * 5
WINDOW, STRIDE = 48, 16
CONFIG = BuildConfig(dtype="fp32", max_seq_len=64, max_batch_size=4, max_num_tokens=32, kv_block_size=16, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Callable[[str], Path]) -> Path:
    root = tmp_path_factory.mktemp("evaluate")
    for family in ("llama", "gemma3_text"):
        shutil.copytree(tiny_checkpoint(family), root / family)
        write_char_tokenizer(root / family)
    (root / "text.txt").write_text(TEXT)
    return root


@pytest.fixture(scope="module")
def engine(folder: Path) -> Path:
    build(folder / "llama", folder / "engine", CONFIG)
    return folder / "engine"


def _loop(checkpoint: Path, window: int, stride: int) -> float:
    """The sliding-window loop that Transformers' documentation shows, in its own words."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor([Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(TEXT).ids])
    total, scored, previous = 0.0, 0, 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + window, ids.shape[1])
        labels = ids[:, begin:end].clone()
        labels[:, : -(end - previous)] = -100
        with torch.no_grad():
            logits = model(ids[:, begin:end]).logits.double()
        kept = labels[0, 1:] != -100
        total += float(torch.nn.functional.cross_entropy(logits[0, :-1][kept], labels[0, 1:][kept], reduction="sum"))
        scored, previous = scored + int(kept.sum()), end
        if end == ids.shape[1]:
            return math.exp(total / scored)
    raise AssertionError


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@pytest.mark.parametrize(("window", "stride"), [(WINDOW, STRIDE), (32, 31), (20, 10)])
def test_perplexity_is_that_of_a_plain_loop(folder: Path, family: str, window: int, stride: int) -> None:
    found = evaluate(folder / family, text=folder / "text.txt", window=window, stride=stride)
    assert found.perplexity == pytest.approx(_loop(folder / family, window, stride), rel=1e-5)
    assert (found.tokens, found.window, found.stride) == (len(TEXT) - 1, window, stride)
    assert found.comparison is None


def test_an_engine_beside_its_checkpoint(folder: Path, engine: Path) -> None:
    found = evaluate(engine, folder / "llama", text=folder / "text.txt", window=WINDOW, stride=STRIDE)
    assert found.comparison is not None
    assert found.comparison.perplexity == pytest.approx(_loop(folder / "llama", WINDOW, STRIDE), rel=1e-5)
    assert found.comparison.perplexity_ratio == pytest.approx(1, abs=1e-5)
    assert found.comparison.kl < 1e-6
    assert found.comparison.top1 > 0.99
    assert json.loads(json.dumps(found.to_json()))["comparison"]["kl"] == found.comparison.kl


def test_another_model_is_far_off_and_its_layers_differ(folder: Path) -> None:
    changed = Path(shutil.copytree(folder / "llama", folder / "changed"))
    _scale(changed, "model.layers.1.mlp.up_proj.weight", 1.5)
    found = evaluate(changed, folder / "llama", text=folder / "text.txt", window=WINDOW)
    assert found.comparison is not None
    assert found.comparison.kl > 1e-3
    assert [layer.name for layer in found.layers] == ["model.layers.1.mlp.up_proj"]
    assert found.layers[0].weight_error == pytest.approx(0.5)


def test_the_quantizers_report_is_taken_over(folder: Path) -> None:
    layers = [
        {"name": f"model.layers.{i}.mlp.up_proj", "scheme": "int4", "weight_error": 0.1, "output_error": error}
        for i, error in enumerate((0.1, 0.3))
    ]
    reported = Path(shutil.copytree(folder / "llama", folder / "reported"))
    (reported / "quantization_report.json").write_text(json.dumps({"layers": layers}))
    found = evaluate(reported, text=folder / "text.txt", window=WINDOW, max_tokens=60)
    assert [layer.output_error for layer in found.worst_layers] == [0.3, 0.1]
    assert found.tokens == 59


def test_without_a_text_it_is_that_of_the_python_installation(folder: Path, engine: Path) -> None:
    found = evaluate(engine, max_tokens=100)
    assert found.text.startswith("pydoc topics of Python 3.")
    assert (found.window, found.stride) == (64, 32)  # as long as the engine's max_seq_len allows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 65}, "window 65 is more than the 64 tokens"),
        ({"window": 1}, "window must be at least 2"),
        ({"stride": 0}, r"stride must be in \[1, 63\]"),
        ({"stride": 64}, r"stride must be in \[1, 63\]"),
        ({"max_tokens": 10}, "has 10 tokens, fewer than the 64 of one window"),
    ],
)
def test_what_cannot_be_evaluated(folder: Path, engine: Path, options: dict[str, int], said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        evaluate(engine, text=folder / "text.txt", **options)  # type: ignore[arg-type]


def test_a_window_for_models_that_state_no_limit() -> None:
    assert _window([], None, None, 1) == (512, 256)


def test_a_text_that_cannot_be_read(folder: Path, engine: Path) -> None:
    (folder / "latin.txt").write_bytes("Zürich".encode("latin-1"))
    with pytest.raises(EvaluationError, match=r"latin\.txt: not UTF-8 text: .* at byte 1"):
        evaluate(engine, text=folder / "latin.txt")
    with pytest.raises(EvaluationError, match="no-such-file: cannot be read"):
        evaluate(engine, text=folder / "no-such-file")


def test_models_without_one_tokenizer_are_not_compared(
    folder: Path, engine: Path, tiny_checkpoint: Callable[[str], Path]
) -> None:
    with pytest.raises(EvaluationError, match="has no tokenizer"):
        evaluate(engine, tiny_checkpoint("llama"), text=folder / "text.txt")
    other = Path(shutil.copytree(folder / "llama", folder / "other-tokens"))
    path = other / "tokenizer.json"
    tokenizer = json.loads((folder / "llama" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["e"], vocabulary["q"] = vocabulary["q"], vocabulary["e"]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(EvaluationError, match="different tokens"):
        evaluate(engine, other, text=folder / "text.txt")


def _scale(checkpoint: Path, name: str, factor: float) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(checkpoint / "model.safetensors")
    tensors[name] = tensors[name] * factor
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
