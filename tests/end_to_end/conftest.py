"""SmolLM2-135M-Instruct as an engine in every precision, and as the module of Transformers, in float32."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from once import once
from real_configs import CONFIGS

from enginesmith import LLM, build

KvCache = Literal["int8", "fp8"] | None


@pytest.fixture(autouse=True)
def _optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """These engines are those of users."""
    monkeypatch.delenv("ENGINESMITH_CXXFLAGS", raising=False)


@pytest.fixture(scope="session")
def engine_folder(smollm2: Path, shared_folder: Path) -> Callable[..., Path]:
    """engine_folder(precision of `CONFIGS`, kv_cache=None) -> the engine's folder, built when first asked for."""

    def make(precision: str, kv_cache: KvCache = None) -> Path:
        def build_into(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("ENGINESMITH_CXXFLAGS", raising=False)
                build(smollm2, folder / "engine", CONFIGS[precision].model_copy(update={"kv_cache": kv_cache}))

        return once(shared_folder / "smollm2" / f"{precision}-{kv_cache or 'plain'}", build_into) / "engine"

    return make


@pytest.fixture(scope="session")
def llm(engine_folder: Callable[[str], Path]) -> Iterator[LLM]:
    """The engine in float32."""
    with LLM(engine_folder("fp32")) as llm:
        yield llm


@pytest.fixture(scope="session")
def reference(smollm2: Path) -> Iterator[Any]:
    """The module of Transformers, in float32. One thread: on a busy machine several wait for each other."""
    import torch

    from enginesmith.builder.reference import load_reference
    from enginesmith.checkpoint.checkpoint import open_checkpoint

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_reference(open_checkpoint(smollm2))
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def hf_tokenizer(smollm2: Path) -> Any:
    """The tokenizer of Transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2, local_files_only=True)


@pytest.fixture(scope="session")
def hf_generate(reference: Any) -> Callable[..., list[int]]:
    """hf_generate(tokens, count, **options) -> the new tokens of Transformers' `generate`, greedy."""
    import torch

    def generate(tokens: list[int], count: int, **options: Any) -> list[int]:
        out = reference.generate(
            input_ids=torch.tensor([tokens]), max_new_tokens=count, do_sample=False, pad_token_id=0, **options
        )
        return out[0, len(tokens) :].tolist()

    return generate


@pytest.fixture(scope="session")
def hf_logits(reference: Any) -> Callable[[list[int]], Any]:
    """hf_logits(tokens) -> float32 [len(tokens), vocab] of Transformers."""
    import torch

    def logits(tokens: list[int]) -> Any:
        with torch.inference_mode():
            return reference(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()

    return logits
