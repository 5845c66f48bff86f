"""What the plugins' Triton kernels become on every GPU that engines are built for; no GPU is needed.

    python benchmarks/cubins.py [--sm 80,90] [--only linear] [--candidates]

compiles them for the shapes of a model of 8 billion parameters (hidden size 4096, MLP 14336, 32 query heads of 128 over
8 key-value heads) and of others that are harder (heads of 80 and of 256), and prints registers a thread, shared memory,
bytes of local memory a thread (spills), and the matrix instruction. Of what several kernels could do, those are
compiled that builds take where nothing is timed; with --candidates all.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import triton

from enginesmith.builder.lowering.dims import Dim, Symbol
from enginesmith.builder.lowering.program import CacheLayer, LinearWeight
from enginesmith.builder.lowering.views import DType, Home, View, contiguous, new_buffer
from enginesmith.builder.targets.cuda.compile import CUBIN, FACTS, compiler_name, start_compiling
from enginesmith.builder.targets.cuda.source.call import Choice, Context, Launch
from enginesmith.builder.targets.cuda.specialize import Specialization, specialize
from enginesmith.plugins.attention.cuda.kernel import MOST_SPLITS, AttentionCall, Partial
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cuda.launches import Finish, Scratch, matrix_launches
from enginesmith.plugins.linear.cuda.packing import layout_of_weight
from enginesmith.plugins.linear.cuda.tactics import MOST_SPLIT_ROWS, input_group, splits
from enginesmith.quantization.scheme import ActivationScheme, LinearScheme, WeightScheme, WeightType
from enginesmith.runtime.manifest import KvDtype

CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHARED_KB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""What a block can have, by compute capability (CUDA C++ Programming Guide, "Technical Specifications")."""
SCHEMES = (
    LinearScheme(WeightScheme(WeightType.BF16)),
    LinearScheme(WeightScheme(WeightType.INT4, 64, symmetric=False)),
    LinearScheme(WeightScheme(WeightType.INT4, 128)),
    LinearScheme(WeightScheme(WeightType.INT8)),
    LinearScheme(WeightScheme(WeightType.INT8, 64)),
    LinearScheme(WeightScheme(WeightType.FP8)),
    LinearScheme(WeightScheme(WeightType.FP8), ActivationScheme.DYNAMIC),
    LinearScheme(WeightScheme(WeightType.FP8, 128), ActivationScheme.DYNAMIC),
    LinearScheme(WeightScheme(WeightType.INT8), ActivationScheme.DYNAMIC),
)
HEADS = ((32, 8, 128, 0.0), (32, 32, 80, 0.0), (8, 4, 256, 50.0))  # query heads, key-value heads, size, softcap


@dataclass(frozen=True)
class Case:
    """A kernel of a node, for one GPU."""

    node: str
    variant: str
    kernel: Specialization


Compiled = tuple[Case, dict[str, Any], Path]


def view(name: str, *sizes: Dim, dtype: DType = DType.F32) -> View:
    """A tensor in the arena, at an address of its own that is aligned."""
    buffer = new_buffer(name, dtype, sizes, Home.ARENA)
    assert buffer is not None
    buffer.offset = 0
    return contiguous(buffer, sizes)


def linear(scheme: LinearScheme, n: int, k: int, context: Context, *, gated: bool = False) -> Sequence[Launch | Choice]:
    """The launches of a Linear or a GatedMLP with bf16 inputs, a bias and, if it is not gated, a residual."""
    tokens = Dim(1, Symbol.TOKENS)
    weight = LinearWeight(cast(tuple, (None,) * (2 if gated else 1)), n, k, scheme, offset=0)
    layout = layout_of_weight(weight)
    inputs = scales = None
    if layout.is_quantized_product:
        inputs = view("inputs", tokens, Dim(k), dtype=DType.BOOL)
        scales = view("scales", tokens, Dim(-(-k // input_group(layout))))
    partial = view("partial", Dim(splits(layout)), Dim(layout.matrices), Dim(MOST_SPLIT_ROWS), Dim(n))
    bias, residual = view("bias", Dim(n)), None if gated else view("residual", tokens, Dim(n))
    activation = ActivationFunction.SILU if gated else ActivationFunction.NONE
    finish = Finish(bias, bias if gated else None, residual, view("y", tokens, Dim(n), dtype=DType.BF16), activation)
    x = view("x", tokens, Dim(k), dtype=DType.BF16)
    return matrix_launches(weight, x, tokens, finish, Scratch(inputs, scales, partial), context)


def attention(
    heads: int, kv_heads: int, size: int, softcap: float, kind: KvDtype, context: Context
) -> Sequence[Launch | Choice]:
    """The launches of a PagedAttention; quantized caches have scales by token."""
    tokens, rows = Dim(1, Symbol.TOKENS), (Dim(1, Symbol.ROWS), Dim(heads), Dim(MOST_SPLITS))
    layer = CacheLayer(0, heads, kv_heads, size, size, 0, kind)
    context = replace(context, strides={0: layer.token_bytes() * context.block_size})
    q, k, v = (
        view(name, tokens, Dim(count), Dim(size), dtype=DType.BF16)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    partial = Partial(view("tops", *rows), view("totals", *rows), view("outputs", *rows, Dim(size)))
    call = AttentionCall("attention", q, k, v, q, None, None, layer, size**-0.5, softcap, 0, 0)
    call.partial = partial
    return call.launches(context)


def cases(sm: int, only: str = "", *, candidates: bool = False) -> Iterator[Case]:
    """All kernels, each of its shapes' tactics once; `candidates`: also those that only a timing could choose."""
    context = Context(sm, 8192, 256, 8192, 32, 256, {}, {0: 0})
    nodes: dict[str, Sequence[Launch | Choice]] = {}
    for scheme in SCHEMES:
        nodes[f"linear {scheme}"] = linear(scheme, 4096, 4096, context)
        nodes[f"gated_mlp {scheme}"] = linear(scheme, 14336, 4096, context, gated=True)
    for shape, kind in product(HEADS, (KvDtype.BF16, KvDtype.INT8, KvDtype.FP8)):
        heads, kv_heads, size, softcap = shape
        name = f"attention {heads}x{kv_heads} d{size}{' softcap' if softcap else ''} {kind}"
        nodes[name] = attention(*shape, kind, context)
    for node, items in nodes.items():
        for title, launch in _launches(items, candidates) if only in node else ():
            kernel, _ = specialize(launch, context, {0: 0})
            yield Case(node, f"{launch.kernel.fn.__name__.removesuffix('_kernel')} {title}".strip(), kernel)


def _launches(items: Sequence[Launch | Choice], candidates: bool) -> Iterator[tuple[str, Launch]]:
    """All launches, with their candidate's title where there is a choice."""
    for item in items:
        if isinstance(item, Launch):
            yield item.title, item
        else:
            taken = item.candidates if candidates else item.candidates[:1]
            yield from ((one.title, launch) for one in taken for launch in one.launches)


def matrix_instructions(cubin: Path) -> list[str]:
    """The kinds of matrix instructions in a cubin, as the machine names them."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    text = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"\b((?:HG|QG|IG|H|Q|I|UTCH|UTCQ|UTCI|O)MMA[.\w]*)", text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", default=",".join(map(str, CAPABILITIES)), help="compute capabilities")
    parser.add_argument("--only", default="", help="nodes whose name holds this")
    parser.add_argument("--summary", action="store_true", help="a line a node: registers, shared KB, spilled bytes")
    parser.add_argument("--candidates", action="store_true", help="also kernels that only a timing could choose")
    arguments = parser.parse_args()
    capabilities = [int(sm) for sm in arguments.sm.split(",")]
    found = {sm: compiled(cases(sm, arguments.only, candidates=arguments.candidates)) for sm in capabilities}
    (show_summary if arguments.summary else show_kernels)(found)
    spilling = sum(facts["local"] > 0 for kernels in found.values() for _, facts, _ in kernels)
    print(f"\n{spilling} of {sum(map(len, found.values()))} kernels use local memory.", file=sys.stderr)


def compiled(found: Iterable[Case]) -> list[Compiled]:
    """What the table of launches says of each, and its cubin."""
    kept = [(case, case.kernel.key(compiler_name())) for case in found]
    folders = start_compiling({key: case.kernel for case, key in kept}).wait()
    return [(case, json.loads((folders[key] / FACTS).read_text()), folders[key] / CUBIN) for case, key in kept]


def show_kernels(found: dict[int, list[Compiled]]) -> None:
    print("| sm | node | kernel | registers | shared KB | local bytes | matrix instructions |")
    print("| ---: | --- | --- | ---: | ---: | ---: | --- |")
    for sm, kernels in found.items():
        for case, facts, cubin in kernels:
            shared = facts["shared"] / 1024
            too_large = " (too large)" if shared > SHARED_KB[sm] else ""
            print(
                f"| {sm} | {case.node} | {case.variant} | {facts['registers']} | {shared:.0f}{too_large} | "
                f"{facts['local']} | {', '.join(matrix_instructions(cubin))} |",
                flush=True,
            )


def show_summary(found: dict[int, list[Compiled]]) -> None:
    """Of each node's kernels the most registers, the most KB of shared memory, and the most bytes spilled."""
    print(f"| node | {' | '.join(f'sm_{sm}' for sm in found)} |")
    print("| --- |" + " ---: |" * len(found))
    for node in dict.fromkeys(case.node for kernels in found.values() for case, _, _ in kernels):
        cells = []
        for kernels in found.values():
            of_node = [facts for case, facts, _ in kernels if case.node == node]
            registers, shared, local = (
                max(facts[name] for facts in of_node) for name in ("registers", "shared", "local")
            )
            cells.append(f"{registers}, {shared / 1024:.0f}, {local}")
        print(f"| {node} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
