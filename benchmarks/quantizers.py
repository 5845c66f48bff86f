"""Compares our quantizers with public ones: the error that each adds to the outputs of layers of a real model.

    python benchmarks/quantizers.py CHECKPOINT [--layers NAME,...] [--group-size 64] [--symmetric] [--tokens 4096]

CHECKPOINT is a Hugging Face folder. Transformers runs it on calibration text for the inputs that quantizers see, and
on other text for those that errors are measured on: both from the Python installation. An error is the root mean
square of the change of a layer's outputs, relative to that of the outputs. int4; every quantizer with its own
defaults, or GPTQ with act-order and static groups. Public quantizers run where they are installed: compressed-tensors
(ranges without a search), llmcompressor (ranges searched for; GPTQ), gptqmodel (GPTQ), autoawq (AWQ); "-" where one is
not, or fails.
"""

import argparse
import sys
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from enginesmith.measure.texts import calibration_text, evaluation_text
from enginesmith.quantization import awq, gptq, rtn
from enginesmith.quantization.feedback import Feedback
from enginesmith.quantization.scheme import WeightScheme, WeightType
from enginesmith.quantization.statistics import InputStatistics, relative_error

LAYERS = "model.layers.3.self_attn.q_proj,model.layers.10.mlp.up_proj,model.layers.20.mlp.down_proj"
Quantizer = Callable[[np.ndarray, np.ndarray, WeightScheme], np.ndarray]  # weight [N, K], inputs [T, K] -> weight


def observed(x: np.ndarray) -> InputStatistics:
    statistics = InputStatistics.empty(x.shape[1])
    statistics.add(x)
    return statistics


def our_rtn(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    return rtn.quantize(w, scheme, storable=True).dequantize(scheme.group_size)


def our_awq(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    statistics = observed(x)
    scale = awq.search_scales([w], scheme, statistics)
    feedback = Feedback.of(statistics.divided(scale).hessian, scheme.group_size)
    return gptq.quantize(w * scale, scheme, feedback).dequantize(scheme.group_size) / scale


def our_gptq(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    feedback = Feedback.of(observed(x).hessian, scheme.group_size)
    return gptq.quantize(w, scheme, feedback).dequantize(scheme.group_size)


def _arguments(scheme: WeightScheme):
    return import_module("compressed_tensors.quantization").QuantizationArgs(
        num_bits=4, symmetric=scheme.symmetric, strategy="group", group_size=scheme.group_size, actorder="weight"
    )


def compressed_tensors_rtn(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    library = import_module("compressed_tensors.quantization")
    arguments = _arguments(scheme)
    groups = torch.from_numpy(w).reshape(len(w), -1, scheme.group_size)
    scale, zero = library.utils.calculate_qparams(groups.amin(-1), groups.amax(-1), arguments)
    return library.fake_quantize(torch.from_numpy(w), scale, zero, arguments).numpy()


def _llmcompressor_range(w: np.ndarray, scheme: WeightScheme, observer: str):
    arguments = _arguments(scheme)
    found = import_module("llmcompressor.observers").Observer.load_from_registry(
        observer, base_name="weight", args=arguments
    )
    found(torch.from_numpy(w))
    qparams = found.get_qparams()
    return arguments, qparams["scale"], qparams["zero_point"]


def llmcompressor_rtn(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    arguments, scale, zero = _llmcompressor_range(w, scheme, "memoryless_mse")
    return (
        import_module("compressed_tensors.quantization")
        .fake_quantize(torch.from_numpy(w), scale, zero, arguments)
        .numpy()
    )


def llmcompressor_gptq(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    quantize_weight = import_module("llmcompressor.modifiers.gptq.gptq_quantize").quantize_weight
    arguments, scale, zero = _llmcompressor_range(w, scheme, "memoryless_minmax")
    hessian = torch.from_numpy(observed(x).mean_hessian * 2)
    made, _, _ = quantize_weight(torch.tensor(w)[None], hessian[None], scale[None], zero[None], None, arguments)
    return made[0].numpy()


def gptqmodel_gptq(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    config = import_module("gptqmodel.quantization").QuantizeConfig(
        bits=4, group_size=scheme.group_size, sym=scheme.symmetric, desc_act=False, act_group_aware=True
    )
    layer = _linear(w)
    solver = import_module("gptqmodel.quantization.gptq").GPTQ(layer, config)
    solver.quantizer.configure(perchannel=True)
    for inputs in torch.from_numpy(x).split(512):
        solver.add_batch(inputs[None], layer(inputs[None]))
    return solver.quantize()[0].float().numpy()


def autoawq_awq(w: np.ndarray, x: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    kind = import_module("awq.quantize.quantizer").AwqQuantizer
    quantizer = kind.__new__(kind)  # without the model that it asks for
    vars(quantizer).update(
        w_bit=4,
        group_size=scheme.group_size,
        zero_point=not scheme.symmetric,
        duo_scaling=True,
        max_chunk_memory=1 << 30,
        n_parallel_calib_samples=None,
    )
    layer, inputs = _linear(w), torch.from_numpy(x)
    size = layer.weight.abs().view(-1, scheme.group_size)
    of_weights = (size / (size.amax(dim=1, keepdim=True) + 1e-6)).view(layer.weight.shape).mean(0)
    exact = layer(inputs[None])
    scale = quantizer._compute_best_scale(inputs[None], of_weights, inputs.abs().mean(0), layer, [layer], exact)
    scaled = torch.from_numpy(w) * scale
    largest = quantizer._compute_best_clip(scaled, inputs / scale)
    groups = scaled.reshape(*largest.shape[:2], -1)
    clipped = torch.clamp(groups, -largest, largest).reshape(scaled.shape)
    return (quantizer.pseudo_quantize_tensor(clipped)[0] / scale).numpy()


QUANTIZERS: dict[str, Quantizer] = {
    "rtn: enginesmith": our_rtn,
    "rtn: compressed-tensors": compressed_tensors_rtn,
    "rtn: llmcompressor, mse": llmcompressor_rtn,
    "awq: enginesmith": our_awq,
    "awq: autoawq": autoawq_awq,
    "gptq: enginesmith": our_gptq,
    "gptq: llmcompressor": llmcompressor_gptq,
    "gptq: gptqmodel": gptqmodel_gptq,
}


def _linear(w: np.ndarray) -> torch.nn.Linear:
    layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    layer.weight.data = torch.tensor(w)
    return layer.requires_grad_(False)


def layer_inputs(model, ids: torch.Tensor, names: list[str]) -> dict[str, np.ndarray]:
    """float32 [T, K], by layer, of sequences of tokens [S, L]."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}

    def keep(name: str):
        return lambda _, arguments: found[name].append(arguments[0].reshape(-1, arguments[0].shape[-1]).numpy())

    hooks = [model.get_submodule(name).register_forward_pre_hook(keep(name)) for name in names]
    for sequence in ids:
        model.model(sequence[None])
    for hook in hooks:
        hook.remove()
    return {name: np.concatenate(parts) for name, parts in found.items()}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--layers", default=LAYERS, help="module names, comma-separated")
    parser.add_argument("--group-size", type=int, default=64)
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--tokens", type=int, default=4096)
    options: SimpleNamespace = parser.parse_args(namespace=SimpleNamespace())
    scheme, names = WeightScheme(WeightType.INT4, options.group_size, options.symmetric), options.layers.split(",")
    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(options.checkpoint, dtype=torch.float32)

    def inputs(text: str, tokens: int) -> dict[str, np.ndarray]:
        ids = tokenizer(text, return_tensors="pt").input_ids[0, : tokens // 512 * 512]
        return layer_inputs(model, ids.reshape(-1, 512), names)

    seen, unseen = inputs(calibration_text(), options.tokens), inputs(evaluation_text(), 4096)
    print(f"{'int4 error of outputs':26}", *(f"{name.removeprefix('model.layers.'):>20}" for name in names), " seconds")
    for label, quantizer in QUANTIZERS.items():
        start, errors = time.perf_counter(), []
        for name in names:
            w = model.get_parameter(f"{name}.weight").numpy()
            try:
                made = quantizer(w.copy(), seen[name], scheme)
                errors.append(f"{relative_error(w, np.asarray(made, np.float32), observed(unseen[name])):.4f}")
            except Exception as error:
                print(f"{label}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
                errors.append("-")
        print(f"{label:26}", *(f"{error:>20}" for error in errors), f"{time.perf_counter() - start:8.1f}", flush=True)


if __name__ == "__main__":
    main()
