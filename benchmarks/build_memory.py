"""Measures memory: of `enginesmith build`, and of loading what it built.

    python benchmarks/build_memory.py [CHECKPOINT] [--weights int4] [--limit 2.0]

Without a checkpoint it makes one of random bfloat16 weights in the shape of Llama-3.2-1B (2.5 GB), and all files go to
a temporary folder. What counts is memory beyond file-backed pages (RssAnon and RssShmem of /proc/PID/status), sampled a
hundred times a second over the process and its children, of which the C++ compiler is one. The build runs with
--no-check, for the check is Transformers' own run in float32. Past --limit (GB) it ends with 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from enginesmith.checkpoint.safetensors_writer import new_safetensors

BF16 = np.dtype(ml_dtypes.bfloat16)
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
COMMAND = [sys.executable, "-c", "from enginesmith.cli.start import main; main()"]
LOAD = """
import sys
from enginesmith import LLM, SamplingParams
def resident():
    status = dict(line.split(":") for line in open("/proc/self/status"))
    return {name: int(status[name].split()[0]) / 1e6 for name in ("RssAnon", "RssFile")}
before = resident()
with LLM(sys.argv[1]) as llm:
    loaded = resident()
    llm.generate([[2, 3, 4]], SamplingParams(max_tokens=2, ignore_eos=True))
    served = resident()
import json
print(json.dumps({"imported": before, "loaded": loaded, "served": served}))
"""


def shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint of CONFIG with so many layers."""
    hidden, inner, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], 8 * 64
    made: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (CONFIG["vocab_size"], hidden)}
    block = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(layers):
        made |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return made | {"model.norm.weight": (hidden,)}


def make_checkpoint(folder: Path, layers: int) -> Path:
    """Random weights, a few rows at a time."""
    folder.mkdir()
    random = np.random.default_rng(0)
    tensors = shapes(layers)
    with new_safetensors(
        folder / "model.safetensors", {name: (BF16, shape) for name, shape in tensors.items()}
    ) as file:
        for name, shape in tensors.items():
            for first in range(0, shape[0], 4096):
                size = (min(4096, shape[0] - first), *shape[1:])
                file.write(name, random.standard_normal(size, np.float32) * 0.02, first)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    return folder


def anonymous(pid: int) -> float:
    """GB beyond file-backed pages of a process; 0 when it has ended."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1e6
    except (OSError, KeyError):
        return 0.0


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        children = []
    return [pid, *(member for child in children for member in family(child))]


def peak_of(command: list[str]) -> dict[str, float]:
    """Run a command: the largest anonymous memory of its process and of it with its children (GB), and seconds."""
    start, alone, together = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            sizes = [anonymous(pid) for pid in family(process.pid)]
            alone, together = max(alone, sizes[0]), max(together, sum(sizes))
            time.sleep(0.01)
    if process.returncode:
        raise SystemExit(process.returncode)
    return {"process": alone, "with_compiler": together, "seconds": time.perf_counter() - start}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--layers", type=int, default=16, help="of the checkpoint that it makes")
    parser.add_argument("--weights", choices=["int8", "int4"], help="quantize, as in enginesmith build")
    parser.add_argument("--limit", type=float, default=2.0, help="GB that a build may hold beyond file-backed pages")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = arguments.checkpoint or make_checkpoint(Path(folder) / "checkpoint", arguments.layers)
        engine = Path(folder) / "engine"
        options = ["--weights", arguments.weights] if arguments.weights else []
        build = peak_of([*COMMAND, "build", str(checkpoint), "-o", str(engine), "--no-check", *options])
        output = subprocess.run(
            [sys.executable, "-c", LOAD, str(engine)], check=True, text=True, stdout=subprocess.PIPE
        )
        sizes = {
            "checkpoint": sum(path.stat().st_size for path in checkpoint.glob("*.safetensors")) / 1e9,
            "engine": os.path.getsize(engine / "weights.bin") / 1e9,
        }
    result = {"gigabytes": sizes, "build": build, "load": json.loads(output.stdout)}
    print(json.dumps(result) if arguments.json else table(result))
    return int(build["with_compiler"] > arguments.limit)


def table(result: dict[str, dict]) -> str:
    sizes, build, load = result["gigabytes"], result["build"], result["load"]
    return "\n".join(
        [
            f"checkpoint {sizes['checkpoint']:.2f} GB, engine {sizes['engine']:.2f} GB of weights",
            f"build: at most {build['process']:.2f} GB beyond file-backed pages, {build['with_compiler']:.2f} GB with "
            f"the compiler's, in {build['seconds']:.0f} s",
            *(
                f"{name}: {sizes['RssAnon']:.3f} GB beyond file-backed pages, {sizes['RssFile']:.3f} GB of them"
                for name, sizes in load.items()
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
