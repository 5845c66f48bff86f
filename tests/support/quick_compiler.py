"""C++ of tests compiles in a third of the time: engines hardly optimized, which changes no bit, headers read once."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from once import once

from enginesmith.builder.targets.cpu import toolchain
from enginesmith.cache import cache_dir
from enginesmith.errors import ToolchainError
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.discovery import include_folders

LEVEL = "-Og"
_PRELUDE = """\
#include <algorithm>
#include <string>
#include <vector>

#include "attention/cpu/paged_attention.h"
#include "embedding/cpu/embedding.h"
#include "engine/loops.h"
#include "engine/runtime.h"
#include "experts/cpu/experts.h"
#include "gated_mlp/cpu/gated_mlp.h"
#include "linear/cpu/linear.h"
#include "norm/cpu/norm.h"
#include "rotary/cpu/rotary.h"
"""


def quick_options() -> str:
    """What ENGINESMITH_CXXFLAGS should be. Headers are precompiled for AVX2, on first use; other targets read them."""
    try:
        compiler = toolchain.find_compiler()
    except ToolchainError:
        return LEVEL
    header = precompiled(_PRELUDE, compiler, (*toolchain.FLAGS, *Isa.AVX2.compiler_flags, LEVEL))
    return f"{LEVEL} -include '{header}'" if header else LEVEL


def precompiled(text: str, compiler: toolchain.Compiler, options: Sequence[str]) -> Path | None:
    """A header of that text, to -include where `options` are the same; it lies in the cache. None: GCC alone has such.

    GCC reads the text itself where the options are others.
    """
    if "Free Software Foundation" not in compiler.version:
        return None
    headers = sorted(toolchain.headers_of(text).values())
    made_of = "\0".join([text, compiler.name, compiler.version, *options, *headers])
    folder = cache_dir("test-headers") / hashlib.sha256(made_of.encode()).hexdigest()[:16]
    includes = [f"-I{folder}" for folder in (*include_folders(), toolchain.ENGINE_HEADERS)]
    command = [*compiler.command, *options, *includes, "-x", "c++-header", "prelude.h", "-o", "prelude.h.gch"]

    def make(folder: Path) -> None:
        (folder / "prelude.h").write_text(text)
        subprocess.run(command, cwd=folder, check=True)

    return once(folder, make) / "prelude.h"
