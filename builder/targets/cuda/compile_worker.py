"""Compiles kernels in a process of its own: a JSON line in for each, a JSON line out.

The first line is the module search path. A job names the function, by module or by file, and what it is specialised
for; the cubin goes into the folder `output`.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path[:] = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        from triton import knobs

        knobs.cache.dir = folder  # what was compiled is kept elsewhere
        for line in sys.stdin:
            try:
                answer = compile_job(json.loads(line))
            except Exception as error:
                answer = {"error": "\n".join(f"{type(one).__name__}: {one}" for one in _causes(error))}
            print(json.dumps(answer), flush=True)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what led to it: of a function that a kernel calls, its own is the last."""
    while error is not None:
        yield error
        error = error.__cause__


def compile_job(job: dict[str, Any]) -> dict[str, Any]:
    """Compile one kernel; what the table of launches says of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from .cubin import local_bytes, registers
    from .source.generated import load_module

    module = load_module(Path(job["file"])) if job["file"] else import_module(job["module"])
    source = ASTSource(
        fn=getattr(module, job["function"]),
        signature=job["signature"],
        constexprs=job["constants"],
        attrs={(number,): [["tt.divisibility", 16]] for number in job["aligned"]},
    )
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"], "enable_fp_fusion": False}
    compiled = triton.compile(source, target=GPUTarget("cuda", job["sm"], 32), options=options)
    facts, cubin = compiled.metadata, compiled.asm["cubin"]
    if facts.global_scratch_size or facts.profile_scratch_size:
        raise ValueError("it needs scratch memory in the device, which the runtime does not give")
    (Path(job["output"]) / "kernel.cubin").write_bytes(cubin)
    return {
        "entry": facts.name,
        "threads": 32 * facts.num_warps,
        "shared": facts.shared,
        "registers": registers(cubin),
        "local": local_bytes(cubin),
    }


if __name__ == "__main__":
    main()
