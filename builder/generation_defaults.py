"""What generation_config.json advises, as fields of SamplingParams; and what of it is not applied, in words.

Advice is never a reason to refuse a build: a value that no request can have is left out and named.
"""

from dataclasses import dataclass, field
from typing import Any

from ..errors import RequestError, shown
from ..runtime.sampling_params import SamplingParams

_FIELDS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
_WHOLE = ("top_k", "max_new_tokens")
# Read elsewhere, or of no influence on the tokens.
_ELSEWHERE = {
    "bos_token_id", "cache_config", "cache_implementation", "compile_config", "decoder_start_token_id",
    "disable_compile", "do_sample", "eos_token_id", "output_attentions", "output_hidden_states", "output_logits",
    "output_scores", "pad_token_id", "return_dict_in_generate", "transformers_version", "use_cache",
}  # fmt: skip
# What changes nothing, beside null, false, 0 and nothing at all.
_NEUTRAL = {
    "encoder_repetition_penalty": 1,
    "length_penalty": 1,
    "max_length": 20,  # Transformers' own default
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "remove_invalid_values": True,
    "typical_p": 1,
}


@dataclass
class GenerationDefaults:
    """`values`: fields of SamplingParams. `notes`: a sentence for each key that is not applied as it stands."""

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def generation_defaults(config: dict[str, Any]) -> GenerationDefaults:
    """Of a raw generation_config.json; `do_sample` false is a temperature of 0."""
    found = GenerationDefaults()
    for key, value in config.items():
        if key in _FIELDS and value is not None:
            _take(found, key, value)
        elif key not in _FIELDS and not _changes_nothing(key, value):
            found.notes.append(f"generation_config.json: {shown(key)} ({shown(value)}) is not applied")
    if config.get("do_sample") is False:
        found.values["temperature"] = 0.0
    return found


def _take(found: GenerationDefaults, key: str, value: Any) -> None:
    name = _FIELDS[key]
    if key in _WHOLE and isinstance(value, float) and value.is_integer():
        value, stated = int(value), value
        found.notes.append(f"generation_config.json: {key} is taken as {value}, not {stated}")
    try:
        SamplingParams().replace(**{name: value})
    except RequestError as error:
        found.notes.append(f"generation_config.json: {key} is not applied: {error}")
    else:
        found.values[name] = value


def _changes_nothing(key: str, value: Any) -> bool:
    return not value or key in _ELSEWHERE or key.startswith("_") or (key in _NEUTRAL and value == _NEUTRAL[key])
