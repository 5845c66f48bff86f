"""What engines reach on this machine's NVIDIA GPU, beside Transformers with torch.compile. One command, one table.

    python benchmarks/gpu.py [--shapes 1b,8b] [--schemes bf16,fp8,int4] [--minutes 8] [--no-peer]

Models have random weights and the shapes of Llama 3.2 1B and of Llama 3.1 8B, of whose 32 layers 8 are built, so that a
disk of 64 GB and a few minutes are enough; all figures are of what is built. Engines are built on the spot, unless
--folder has them already. Columns: decoding one stream, as a share of the bandwidth; prompts of 1024, as a share of the
peak; output tokens a second of many requests at once. The ceilings are measured with PyTorch where it sees the GPU (a
copy in the device, and a product of bf16 matrices), and otherwise those of the data sheet.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from enginesmith import LLM, SamplingParams, build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.errors import EnginesmithError
from enginesmith.runtime.engine_dir import read_report
from enginesmith.runtime.executors.cuda.device import find_device

_PROMPT, _DECODED = 1024, 128
_REPEATED = 1 << 22  # random numbers that the tensors of a checkpoint repeat


@dataclass(frozen=True)
class Shape:
    """A llama: sizes, the layers that are built of how many, and the lengths that fit."""

    hidden: int
    inner: int
    layers: int
    of_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    max_seq_len: int = 2048
    max_num_tokens: int = 2048


SHAPES = {
    "tiny": Shape(64, 96, 2, 2, 4, 2, 16, 128, True, 64, 48),
    "1b": Shape(2048, 8192, 16, 16, 32, 8, 64, 128256, True),
    "8b": Shape(4096, 14336, 8, 32, 32, 8, 128, 128256, False),
}
SCHEMES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp8": {"weights": "fp8"},
    "int4": {"weights": "int4", "group_size": 128},
}
DATA_SHEETS = {"H200": (4.8e12, 989e12), "H100": (3.35e12, 989e12), "A100": (2.0e12, 312e12), "L4": (0.3e12, 121e12)}
"""Bytes, and operations in bf16 without sparsity, a second."""


@dataclass(frozen=True)
class Ceilings:
    """Bytes and operations a second, and where they are from; None where nobody knows."""

    bandwidth: float | None
    peak: float | None
    source: str


@dataclass
class Row:
    """Figures of one engine, or of the peer; what was not measured is absent."""

    model: str
    engine: str
    decode: float | None = None
    read: float | None = None
    prefill: float | None = None
    compute: float | None = None
    batches: tuple[float | None, ...] = ()
    note: str = ""


def write_checkpoint(folder: Path, shape: Shape) -> Path:
    """config.json and model.safetensors in bf16."""
    folder.mkdir(parents=True)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = dict(_tensors(shape))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, sizes in tensors.items():
        begin, end = end, end + 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, sizes in tensors.items():
            for values in _values(name, int(np.prod(sizes))):
                file.write(values.tobytes())
    return folder


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (shape.vocabulary, shape.hidden)
    if not shape.tied:
        yield "lm_head.weight", (shape.vocabulary, shape.hidden)
    yield "model.norm.weight", (shape.hidden,)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (shape.hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (shape.hidden,)
        yield f"{prefix}.self_attn.q_proj.weight", (queries, shape.hidden)
        yield f"{prefix}.self_attn.k_proj.weight", (keys, shape.hidden)
        yield f"{prefix}.self_attn.v_proj.weight", (keys, shape.hidden)
        yield f"{prefix}.self_attn.o_proj.weight", (shape.hidden, queries)
        yield f"{prefix}.mlp.gate_proj.weight", (shape.inner, shape.hidden)
        yield f"{prefix}.mlp.up_proj.weight", (shape.inner, shape.hidden)
        yield f"{prefix}.mlp.down_proj.weight", (shape.hidden, shape.inner)


def _values(name: str, count: int) -> Iterator[np.ndarray]:
    if "norm" in name:
        yield np.ones(count, ml_dtypes.bfloat16)
        return
    for first in range(0, count, _REPEATED):
        yield _random()[: min(_REPEATED, count - first)]


@cache
def _random() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.02, _REPEATED).astype(np.float32).astype(ml_dtypes.bfloat16)


def engine_of(checkpoint: Path, scheme: str, shape: Shape, requests: int, timing_cache: Path) -> Path:
    """The engine beside the checkpoint, built now if it is not there."""
    folder = checkpoint.with_name(f"{checkpoint.name}-{scheme}.engine")
    if not folder.exists():
        target = CudaOptions(timing_cache=str(timing_cache))
        sizes = {"max_num_tokens": shape.max_num_tokens, "max_seq_len": shape.max_seq_len, "max_batch_size": requests}
        build(checkpoint, folder, BuildConfig(check=False, target=target, **SCHEMES[scheme], **sizes))
    return folder


def measure(engine: Path, row: Row, ceilings: Ceilings, lengths: Sequence[tuple[int, int]], requests: int) -> None:
    """Fill in a row."""
    work, kv_bytes = read_report(engine)["work"], read_report(engine)["kv_bytes_per_token"]
    with LLM(engine, prefix_cache=False, warm_up=True) as llm:
        prompt = min(_PROMPT, llm.manifest.limits.max_seq_len - 1)
        decoded = min(_DECODED, llm.manifest.limits.max_seq_len - 16)
        step = statistics.median(_ask(llm, [(16, decoded)])[1])
        row.decode = 1 / step
        read = work["linear_bytes"] + kv_bytes * (16 + decoded / 2)
        row.read = read / step / ceilings.bandwidth if ceilings.bandwidth else None
        first = statistics.median(_ask(llm, [(prompt, 1)])[0] for _ in range(3))
        row.prefill = prompt / first
        operations = (
            prompt * work["token_ops"] + work["logits_ops"] + work["attention_ops"] * prompt * (prompt + 1) // 2
        )
        row.compute = operations / first / ceilings.peak if ceilings.peak else None
        row.batches = tuple(_rate(llm, [pair] * requests) for pair in lengths)


def _rate(llm: LLM, requests: list[tuple[int, int]]) -> float | None:
    """Output tokens a second; None where the engine is too small."""
    if sum(requests[0]) > llm.manifest.limits.max_seq_len:
        return None
    started = time.perf_counter()
    _ask(llm, requests)
    return sum(output for _, output in requests) / (time.perf_counter() - started)


def _ask(llm: LLM, requests: list[tuple[int, int]]) -> tuple[float, list[float]]:
    """Seconds to the first request's first token, and between its tokens."""
    random = np.random.default_rng(1)
    prompts = [random.integers(0, llm.manifest.model.vocab_size, prompt).tolist() for prompt, _ in requests]
    params = [SamplingParams(temperature=0, max_tokens=output, ignore_eos=True) for _, output in requests]
    metrics = llm.generate(prompts, params)[0].metrics
    return metrics.ttft or 0.0, list(metrics.inter_token_latencies)


def measured_ceilings(name: str) -> Ceilings:
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        copied = 2 * source.numel() / _seconds(torch, lambda: target.copy_(source))
        return Ceilings(copied, 2 * 8192**3 / _seconds(torch, lambda: a @ b), "measured with PyTorch")
    known = next((sheet for part, sheet in DATA_SHEETS.items() if part in name), (None, None))
    return Ceilings(*known, "of the data sheet" if known[0] else "unknown for this GPU")


def _seconds(torch: Any, run: Any) -> float:
    """The best of 10 after a warm-up."""
    times = []
    for _ in range(11):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return min(times[1:])


def measure_peer(checkpoint: Path, row: Row, lengths: Sequence[tuple[int, int]], requests: int) -> None:
    """Transformers in bf16, its step compiled with a static cache. Without PyTorch on the GPU, a note."""
    import torch
    import transformers

    if not torch.cuda.is_available():
        row.note = "PyTorch sees no GPU"
        return
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    model = model.to("cuda").eval()

    def seconds(count: int, prompt: int, output: int) -> float:
        ids = torch.randint(0, model.config.vocab_size, (count, prompt), device="cuda")
        settings = transformers.GenerationConfig(
            max_new_tokens=output, min_new_tokens=output, do_sample=False, pad_token_id=0, eos_token_id=None,
            cache_implementation="static",
        )  # fmt: skip
        times = []
        for _ in range(3):  # the first two compile, and capture
            torch.cuda.synchronize()
            started = time.perf_counter()
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        return times[-1]

    row.decode = _DECODED / (seconds(1, 16, _DECODED + 1) - seconds(1, 16, 1))
    row.prefill = _PROMPT / seconds(1, _PROMPT, 1)
    row.batches = tuple(requests * output / seconds(requests, prompt, output) for prompt, output in lengths)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        device = find_device()
    except EnginesmithError as error:
        print(f"there is nothing to measure: {error}", file=sys.stderr)
        return 1
    started, ceilings = time.monotonic(), measured_ceilings(device.name)
    lengths = [(int(a), int(b)) for a, b in (pair.split("/") for pair in options.lengths.split(","))]
    shown = ", ".join(
        "unknown" if value is None else f"{value / 1e12:.2f} {unit}"
        for value, unit in ((ceilings.bandwidth, "TB/s"), (ceilings.peak, "TFLOP/s"))
    )
    print(f"{device.name}, driver for CUDA {device.shown_driver}; ceilings {ceilings.source}: {shown}\n")
    batches = " | ".join(f"{options.requests} x {prompt}/{output}" for prompt, output in lengths)
    print(f"| model | engine | decode tokens/s | of bandwidth | prefill tokens/s | of peak | {batches} | seconds |")
    print("| --- | --- |" + " ---: |" * (5 + len(lengths)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        for name in options.shapes.split(","):
            shape = SHAPES[name]
            model = name if shape.layers == shape.of_layers else f"{name}, {shape.layers} of {shape.of_layers} layers"
            engines = [*options.schemes.split(","), *(["Transformers"] if options.peer else [])]
            for engine in engines:
                row, begun = Row(model, engine, batches=(None,) * len(lengths)), time.monotonic()
                if begun - started > 60 * options.minutes:
                    row.note = "no time left"
                else:
                    _fill(row, folder / name, shape, ceilings, lengths, options.requests)
                _show(row, time.monotonic() - begun)
    return 0


def _fill(
    row: Row, checkpoint: Path, shape: Shape, ceilings: Ceilings, lengths: Sequence[tuple[int, int]], requests: int
) -> None:
    """A row, or what was wrong with it: the others are measured all the same."""
    try:
        if not checkpoint.exists():
            write_checkpoint(checkpoint, shape)
        if row.engine == "Transformers":
            measure_peer(checkpoint, row, lengths, requests)
            return
        engine = engine_of(checkpoint, row.engine, shape, requests, checkpoint.with_name("timings.json"))
        measure(engine, row, ceilings, lengths, requests)
    except Exception as error:
        row.note = f"{type(error).__name__}: {error}"


def _show(row: Row, seconds: float) -> None:
    figures = [
        *(row.decode, None if row.read is None else f"{row.read:.1%}"),
        *(row.prefill, None if row.compute is None else f"{row.compute:.1%}"),
        *row.batches,
    ]
    cells = ["" if value is None else value if isinstance(value, str) else f"{value:,.1f}" for value in figures]
    print(f"| {row.model} | {row.engine} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)
    if row.note:
        print(f"{row.model}, {row.engine}: {row.note}", file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="1b,8b", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--schemes", default="bf16,fp8,int4", help=f"of {', '.join(SCHEMES)}")
    parser.add_argument("--lengths", default="128/128,1000/1000", help="tokens in and out of each request")
    parser.add_argument("--requests", type=int, default=64, help="requests at once")
    parser.add_argument("--minutes", type=float, default=8, help="after which no row is begun")
    parser.add_argument("--folder", help="where checkpoints and engines are, or are put; default: for this run alone")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="Transformers, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
