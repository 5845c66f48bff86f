"""What `pytest -m gpu` runs kernels with, on the emulated GPU: tensors go to the device, and come back."""

import json
from pathlib import Path
from typing import Any

import device_kernels
import torch
from emulated_gpu import EmulatedGpu

from enginesmith.plugins.sampling.cuda.greedy import greedy_kernel


def test_tensors_are_copied_and_come_back(gpu: EmulatedGpu):
    def stand_in(job: dict[str, Any]) -> dict[str, Any]:
        Path(job["output"], "kernel.cubin").write_text(json.dumps(job) + "\0")
        return {"entry": job["function"], "threads": 128, "shared": 0, "registers": 0, "local": 0}

    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))[:, 1:]
    tokens = torch.full((5,), -9, dtype=torch.int32)
    sizes = {"VOCABULARY": 39, "LOGITS_ROW": 40, "BLOCK": 16}
    device_kernels.run(greedy_kernel, (3,), {"logits": logits, "tokens": tokens[1:], **sizes}, stand_in)
    assert tokens.tolist() == [-9, *logits.argmax(dim=1).tolist(), -9]
    assert gpu.held == 0
