"""Every kernel header compiles without a warning for every instruction set, whether or not this machine has it."""

import subprocess
from pathlib import Path

import pytest

import enginesmith
from enginesmith.plugins.cpu.isa import Isa

PLUGINS = Path(enginesmith.__file__).parent / "plugins"
CHOSEN_BY_OTHERS = {"vf8.h", "vf16.h", "vf16_emulated.h"}
HEADERS = sorted(str(path.relative_to(PLUGINS)) for path in PLUGINS.rglob("*.h") if path.name not in CHOSEN_BY_OTHERS)
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
template void packed_embedding<Int8Weight<24>, 50, 67>(ThreadPool&, const uint8_t*, const int32_t*, MutRows, int64_t);
}
"""


@pytest.mark.parametrize("isa", Isa)
def test_headers_compile(compiler_command, isa):
    beyond = [other.value for other in list(Isa)[list(Isa).index(isa) + 1 :]]
    headers = [name for name in HEADERS if not any(word in Path(name).stem for word in beyond)]
    source = "".join(f'#include "{name}"\n' for name in headers) + INSTANCES
    # -fsyntax-only does not optimize, but instantiates.
    command = [*compiler_command(isa), "-O0", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
