"""Kernels of the plugins become cubins for every GPU that engines are built for, and spill nothing.

One of them here; all that `benchmarks/cubins.py` names with ENGINESMITH_CUBINS=all, which takes an hour of two cores.
"""

import json
import os
import runpy
from pathlib import Path

from enginesmith.builder.targets.cuda.compile import FACTS, compiler_name, start_compiling

CUBINS = runpy.run_path(str(Path(__file__).parents[4] / "benchmarks" / "cubins.py"))
FEW = {"linear int4-g128": "split 64x16"}
"""Of these nodes, the kernel whose name begins so: what a step that decodes spends its time in."""


def test_kernels_compile_and_spill_nothing():
    found = [(sm, case) for sm in (80, 89, 90, 100, 120) for case in CUBINS["cases"](sm)]
    if os.environ.get("ENGINESMITH_CUBINS") != "all":
        found = [(sm, case) for sm, case in found if case.variant.startswith(FEW.get(case.node, "none"))]
        assert len(found) == 5 * len(FEW)
    keys = [case.kernel.key(compiler_name()) for _, case in found]
    folders = start_compiling({key: case.kernel for key, (_, case) in zip(keys, found, strict=True)}).wait()
    for key, (sm, case) in zip(keys, found, strict=True):
        facts = json.loads((folders[key] / FACTS).read_text())
        assert facts["local"] == 0, (sm, case)
        assert facts["shared"] <= CUBINS["SHARED_KB"][sm] << 10, (sm, case)
        assert 16 <= facts["registers"] <= 255, (sm, case)
