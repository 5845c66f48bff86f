"""Checkpoints as writers write them: in Transformers, by compressed-tensors, beside plain weights and the engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_engine import StepEngine

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.check import compare, load_reference
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.checkpoint.folder import REPORT, CheckpointFolder
from enginesmith.checkpoint.layouts.writers import writer_of
from enginesmith.quantization import fp8, rtn
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, LinearScheme, WeightScheme, WeightType

pytestmark = pytest.mark.slow

CONFIG = BuildConfig(
    dtype="fp32", max_num_tokens=48, max_batch_size=48, kv_block_size=16, target=CpuOptions(isa="avx2"), check=False
)
TOKENS = [(3 + 37 * i) % 128 for i in range(40)]
INT4, INT8, FP8 = WeightType.INT4, WeightType.INT8, WeightType.FP8
SCHEMES = {
    "int4": LinearScheme(WeightScheme(INT4)),
    "int4-g32": LinearScheme(WeightScheme(INT4, 32)),
    "int4-g32-zeros": LinearScheme(WeightScheme(INT4, 32, symmetric=False)),
    "int4-g64-zeros": LinearScheme(WeightScheme(INT4, 64, symmetric=False)),  # which 96 inputs are no multiple of
    "int8": LinearScheme(WeightScheme(INT8)),
    "int8-g32": LinearScheme(WeightScheme(INT8, 32)),
    "int8-dynamic": LinearScheme(WeightScheme(INT8), ActivationScheme.DYNAMIC),
    "int8-static": LinearScheme(WeightScheme(INT8), ActivationScheme.STATIC),
    "fp8": LinearScheme(WeightScheme(FP8)),
    "fp8-dynamic": LinearScheme(WeightScheme(FP8), ActivationScheme.DYNAMIC),
    "fp8-static": LinearScheme(WeightScheme(FP8), ActivationScheme.STATIC),
}
# Of a logit's worst distance relative to its row's spread, and the mean KL divergence, between engine and Transformers.
# Both round the same inputs for FP8 and static scales: what differs is the head, int8 in the engine. Kernels for
# int4 round all inputs to 8 bits, those for int8 dynamic ones by finer groups than a token.
SAME, FINER = (0.1, 5e-4), (0.3, 4e-3)


class Written:
    """A tiny checkpoint as written by one scheme, and the model that it stands for."""

    def __init__(self, source: Path, output: Path, scheme: LinearScheme, *, per_tensor: bool = False) -> None:
        self.scheme, self.per_tensor = scheme, per_tensor
        checkpoint = open_checkpoint(source)
        self.model = load_reference(checkpoint)
        names = [name.removesuffix(".weight") for name in checkpoint.tensors if name.endswith("_proj.weight")]
        self.input_scales = self._input_scales(names)
        self._write(checkpoint, output, names)

    def _input_scales(self, names: list[str]) -> dict[str, float]:
        import torch

        largest: dict[str, float] = {}
        hooks = [
            self.model.get_submodule(name).register_forward_pre_hook(
                lambda _, inputs, name=name: largest.update({name: float(inputs[0].abs().max())})
            )
            for name in names
        ]
        self.logits(torch.tensor([TOKENS]))
        for hook in hooks:
            hook.remove()
        top = 448 if self.scheme.weight.type is FP8 else 127
        return {name: float(np.float32(value / top)) for name, value in largest.items()}

    def _write(self, checkpoint: Checkpoint, output: Path, names: list[str]) -> None:
        import torch

        writer = writer_of("compressed-tensors", self.scheme, per_tensor=self.per_tensor)
        for name in names:
            writer.check(name, *checkpoint.tensors[f"{name}.weight"].shape)
        with CheckpointFolder(output, checkpoint, "") as folder:
            plain = {n: checkpoint.read(n) for n in checkpoint.tensors if n.removesuffix(".weight") not in names}
            folder.write("rest", plain)
            for name in names:
                weight = self._quantize(checkpoint.read(f"{name}.weight"))
                packed = writer.pack(weight, self.input_scales[name])
                folder.write(name, {f"{name}.{suffix}": tensor for suffix, tensor in packed.items()})
                values = torch.from_numpy(weight.dequantize(self.scheme.weight.group_size))
                self.model.get_submodule(name).weight.data = values
            folder.finish(writer.config(["lm_head"]), {REPORT: "{}"})

    def _quantize(self, weight: np.ndarray) -> QuantizedWeight:
        if self.scheme.weight.type is FP8:
            return fp8.quantize(weight, self.scheme.weight, per_tensor=self.per_tensor)
        return rtn.quantize(weight, self.scheme.weight, storable=True)

    def logits(self, ids: Any) -> np.ndarray:
        import torch

        with torch.inference_mode():
            return self.model(ids).logits[0].numpy()

    @contextmanager
    def rounded_inputs(self) -> Iterator[None]:
        """The plain model with its layers' inputs rounded as compressed-tensors does, to 255 even steps or to E4M3."""
        hooks = []
        if self.scheme.activation is not ActivationScheme.NONE:
            for name, scale in self.input_scales.items():
                hook = self._rounding(scale)
                hooks.append(self.model.get_submodule(name).register_forward_pre_hook(hook))
        yield
        for hook in hooks:
            hook.remove()

    def _rounding(self, static: float) -> Callable[[Any, tuple[Any, ...]], tuple[Any]]:
        import torch

        is_float, dynamic = self.scheme.weight.type is FP8, self.scheme.activation is ActivationScheme.DYNAMIC

        def rounded(_: Any, inputs: tuple[Any, ...]) -> tuple[Any]:
            x = inputs[0]
            scale = x.abs().amax(-1, keepdim=True) / (448 if is_float else 127.5) if dynamic else torch.tensor(static)
            if is_float:
                return ((x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale,)
            return ((x / scale).clamp(-128, 127).round() * scale,)

        return rounded


@pytest.mark.parametrize("name", [*SCHEMES, "fp8-per-tensor"])
def test_transformers_and_the_engine_agree(tiny_checkpoint, tmp_path: Path, name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    scheme = SCHEMES[name.removesuffix("-per-tensor")]
    output = tmp_path / "checkpoint"
    written = Written(tiny_checkpoint("qwen3"), output, scheme, per_tensor=name.endswith("per-tensor"))
    loaded = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32, attn_implementation="eager")
    ids = torch.tensor([TOKENS])
    with torch.inference_mode():
        logits = loaded(ids).logits[0].numpy()
    with written.rounded_inputs():
        np.testing.assert_allclose(logits, written.logits(ids), atol=1e-4)

    report = build(output, tmp_path / "engine", CONFIG)
    assert not report.dequantized
    engine = StepEngine(tmp_path / "engine")
    try:
        found = engine.run(TOKENS, len(TOKENS))
    finally:
        engine.executor.close()
    same = scheme.weight.type is FP8 or scheme.activation is ActivationScheme.STATIC
    result = compare(found, logits, *(SAME if same else FINER))
    assert result.passed, result
