"""Every kernel header compiles without a warning for every instruction set, whether or not this machine has it."""

import subprocess
from pathlib import Path

import enginesmith
import pytest
from enginesmith.plugins.cpu.isa import Isa

PLUGINS = Path(enginesmith.__file__).parent / "plugins"
INCLUDES = "".join(f'#include "{path.relative_to(PLUGINS)}"\n' for path in sorted(PLUGINS.rglob("*.h")))
INSTANCES = """
namespace es {
template struct PagedAttention<Fp32, 9, 3, 64, 64, 32>;
template struct PagedAttention<Bf16, 5, 1, 17, 5, 48>;
template void rms_norm<3, 65>(ThreadPool&, Heads, const float*, float, MutHeads, int64_t);
template void layer_norm<3, 65>(ThreadPool&, Heads, const float*, const float*, float, MutHeads, int64_t);
template void rotary<RotaryStyle::kNeox, 3, 64, 32, 1>(ThreadPool&, Heads, Rows, Rows, MutHeads, int64_t);
template void rotary<RotaryStyle::kGptj, 3, 34, 34, 2>(ThreadPool&, Heads, Rows, Rows, MutHeads, int64_t);
template void embedding<Fp32, 50, 67>(ThreadPool&, const uint8_t*, const int32_t*, MutRows, int64_t);
template void embedding<Bf16, 50, 67>(ThreadPool&, const uint8_t*, const int32_t*, MutRows, int64_t);
}
"""


@pytest.mark.parametrize("isa", Isa)
def test_headers_compile(compiler_command, isa):
    # -fsyntax-only does not optimize, but instantiates.
    command = [*compiler_command(isa), "-O0", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=INCLUDES + INSTANCES, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
