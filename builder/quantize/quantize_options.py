"""The options of a quantization: the one definition that the CLI, recipes and the Python API share."""

from typing import Literal

from pydantic import Field, model_validator

from ...checked_options import Options
from ...quantization.scheme import ActivationScheme, KvType, LinearScheme, WeightScheme, WeightType

Method = Literal["rtn", "awq", "gptq", "smoothquant", "fp8"]
Format = Literal["compressed-tensors", "awq", "gptq"]


class QuantizeConfig(Options):
    """How to quantize a checkpoint."""

    method: Method = Field(
        description="rtn: round to nearest; awq, gptq: with calibration data; smoothquant: int8 weights and inputs; "
        "fp8: E4M3 weights and inputs. See docs/quantization.md."
    )
    bits: Literal[4, 8] | None = Field(
        default=None, description="Bits of a weight (rtn, awq, gptq: 4 by default; smoothquant, fp8: 8)."
    )
    group_size: Literal[32, 64, 128, -1] | None = Field(
        default=None,
        description="Inputs whose weights share a scale, -1 for all of a channel (default: 128 for 4 bits, -1 for 8).",
    )
    symmetric: bool | None = Field(
        default=None,
        description="Without or with zero points (default: with them for 4 bits in groups).",
        json_schema_extra={"off": "asymmetric"},
    )
    activations: Literal["none", "dynamic", "static"] | None = Field(
        default=None, description="Rounding of layers' inputs (smoothquant, fp8: dynamic by default; others: none)."
    )
    per_tensor: bool = Field(default=False, description="With fp8: one scale for a whole matrix, not one per channel.")
    format: Format = Field(default="compressed-tensors", description="How the checkpoint stores its weights.")
    kv_cache: KvType | None = Field(
        default=None, description="Have engines built from it quantize their KV cache, with scales from calibration."
    )
    calibration: str | None = Field(
        default=None,
        description="A text or JSONL file, 'topics' (text of the Python installation), or a data set of the Hub; "
        "default: text sampled from the model itself. rtn and fp8 do without, but for static activations and KV "
        "caches; fp8 given some rounds as gptq does.",
    )
    samples: int = Field(default=64, ge=1, le=65536, description="Sequences of calibration data.")
    sequence_length: int | None = Field(
        default=None, ge=8, description="Tokens in each of them (default: 256, or as many as the model takes)."
    )
    ignore: tuple[str, ...] = Field(
        default=(),
        description="A layer to leave alone, besides the head: its name, or 're:' and a regular expression; may be "
        "repeated.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the choice, or the sampling, of calibration data.")

    @model_validator(mode="after")
    def _is_a_scheme(self) -> "QuantizeConfig":
        _ = self.scheme
        return self

    @property
    def scheme(self) -> LinearScheme:
        """What linear layers become. Raises ValueError for options that contradict each other."""
        eight = self.method in ("smoothquant", "fp8")
        bits = self.bits or (8 if eight else 4)
        if eight and bits != 8:
            raise ValueError(f"{self.method} makes 8-bit weights, not {bits}")
        group = self.group_size or (128 if bits == 4 else -1)
        self._check(bits, group)
        type_ = WeightType.FP8 if self.method == "fp8" else WeightType.INT8 if bits == 8 else WeightType.INT4
        symmetric = self.symmetric if self.symmetric is not None else bits == 8 or group == -1
        activation = ActivationScheme(self.activations or ("dynamic" if eight else "none"))
        return LinearScheme(WeightScheme(type_, max(group, 0), symmetric), activation)

    def _check(self, bits: int, group: int) -> None:
        is_fp8 = self.method == "fp8"
        if self.per_tensor and not is_fp8:
            raise ValueError(f"per_tensor goes with fp8, not with {self.method}")
        if is_fp8 and group != -1:
            raise ValueError(f"fp8 has a scale for each channel, or one with per_tensor, not for groups of {group}")
        if self.symmetric is False and (bits != 4 or group == -1):
            raise ValueError("zero points (asymmetric) are for 4 bits in groups only; use bits 4 and a group size")
        if bits == 4 and self.activations not in (None, "none"):
            raise ValueError(f"{self.activations} activations go with 8 bits only, not with 4")
