"""An engine without attention, for what is of the executor alone."""

from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import stand_in_compiler
from once import once
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.builder.targets.cuda.plan import plan
from enginesmith.progress import NoProgress
from enginesmith.runtime.engine_dir import write_engine
from enginesmith.runtime.manifest import (
    KvCacheSpec,
    KvDtype,
    KvGroup,
    KvGroupKind,
    Limits,
    Manifest,
    ModelFacts,
    Quantization,
)

VOCABULARY = 24
TABLE = np.random.default_rng(3).normal(0, 2, (VOCABULARY, VOCABULARY)).astype(np.float32)
SMALL = SmallNetwork(
    """
    a = Gather<axis=0>(table, input_ids)  b = Tanh(a)  column = Constant<value_ints=[0, 1]>()
    p = Cast<to=1>(position_ids)  q = Reshape(p, column)  c = Add(b, q)
    logits = Gather<axis=0>(c, logits_rows)
    """,
    VOCABULARY,
    {"table": TABLE},
)
_GROUP = KvGroup(kind=KvGroupKind.FULL, window=0, layers=(0,), bytes_per_block=4096)
LIMITS = Limits(max_batch_size=6, max_num_tokens=16, max_seq_len=64)


def expected(tokens: list[int], position: int = 0) -> np.ndarray:
    """Logits [len(tokens), V] of SMALL for tokens from `position` on."""
    return np.tanh(TABLE[tokens].astype(np.float64)) + np.arange(position, position + len(tokens))[:, None]


def write_small_engine(folder: Path) -> None:
    config = BuildConfig(
        dtype="fp32",
        max_num_tokens=LIMITS.max_num_tokens,
        max_batch_size=LIMITS.max_batch_size,
        check=False,
        target=CudaOptions(sm="90", tactics="table"),
    )
    with stand_in_compiler():
        planned = plan(SMALL.network(), config, 90, LIMITS.max_seq_len)
        compilation = planned.start_compiling(folder)
        planned.pack(folder, SMALL.parameters.__getitem__, NoProgress())
        compilation.wait()
        manifest = Manifest(
            builder_version="0",
            model=ModelFacts(
                name="small", architecture="Small", model_type="small", vocab_size=VOCABULARY, num_layers=0,
                num_parameters=TABLE.size, eos_token_ids=(),
            ),
            limits=LIMITS,
            kv_cache=KvCacheSpec(block_size=32, dtype=KvDtype.FP32, groups=(_GROUP,)),
            quantization=Quantization(scheme="fp32"),
            target=planned.facts(),
        )  # fmt: skip
        write_engine(folder, manifest)


@pytest.fixture(scope="session")
def small_engine(shared_folder: Path) -> Path:
    return once(shared_folder / "small-cuda", write_small_engine)
