"""From the fields of a request to `SamplingParams`, which check ranges; the server's own caps are checked here."""

from collections.abc import Mapping
from typing import Any

from ..errors import ParameterError, shown
from ..runtime.sampling_params import SamplingParams
from .options import ServeOptions
from .protocol.common import GenerationBody
from .service import Service

_SAME = (
    *("n", "min_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "seed", "stop", "stop_token_ids", "bad_words", "no_repeat_ngram_size", "ignore_eos"),
    *("skip_special_tokens", "include_stop_str_in_output", "prompt_logprobs"),
    *("cache_salt", "cache_priority", "cache_ttl"),
)


_MAX_BAD_WORD = 1000  # characters: they are made tokens of while other requests wait


def sampling_params(
    body: GenerationBody,
    service: Service,
    num_prompts: int,
    logprobs: int | None,
    renamed: Mapping[str, str],
    **fields: Any,
) -> SamplingParams:
    """What a request asks for, over the engine's defaults. `fields`: those that chats and completions name differently.

    `renamed`: what the request calls some of the parameters. Raises RequestError naming the parameter, its limit and
    the value.
    """
    _check_caps(body, service.options, num_prompts, logprobs, renamed)
    if body.stream_options is not None and not body.stream:
        raise ParameterError("stream_options", "goes with stream: set that to true, or leave stream_options out")
    if body.prompt_logprobs is not None and body.stream:
        raise ParameterError("prompt_logprobs", "goes without stream: set that to false, or leave prompt_logprobs out")
    values = {name: value for name in _SAME if (value := getattr(body, name)) is not None}
    if body.logit_bias is not None:
        if len(body.logit_bias) > (most := service.engine.manifest.model.vocab_size):
            raise ParameterError(
                "logit_bias",
                f"may hold each of the vocabulary's {most} tokens once, got {len(body.logit_bias)} entries",
            )
        values["logit_bias"] = {_token(key): bias for key, bias in body.logit_bias.items()}
    if logprobs is not None:
        values["logprobs"] = logprobs
    return service.engine.default_sampling_params.replace(**(values | fields))


def _check_caps(
    body: GenerationBody, options: ServeOptions, num_prompts: int, logprobs: int | None, renamed: Mapping[str, str]
) -> None:
    outputs = max(body.n or 1, 1) * num_prompts
    if outputs > options.max_n:
        of = "" if num_prompts == 1 else f", times {num_prompts} prompts,"
        limit = f"must be at most {options.max_n} on this server (--max-n)"
        raise ParameterError("n", f"{of.removeprefix(', ')} {limit}, got {shown(outputs)}".strip())
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    for name, values in (("stop", stop), ("stop_token_ids", body.stop_token_ids), ("bad_words", body.bad_words)):
        if values is not None and len(values) > options.max_stop:
            raise ParameterError(name, f"may hold {options.max_stop} on this server (--max-stop), got {len(values)}")
    for index, word in enumerate(body.bad_words or ()):
        if len(word) > _MAX_BAD_WORD:
            limit = f"must have at most {_MAX_BAD_WORD} characters on this server, got {len(word)}"
            raise ParameterError(f"bad_words[{index}]", limit)
    asked = {renamed.get("logprobs", "logprobs"): logprobs, "prompt_logprobs": body.prompt_logprobs}
    for name, value in asked.items():
        if value is not None and value > options.max_logprobs:
            limit = f"must be at most {options.max_logprobs} on this server (--max-logprobs), got {shown(value)}"
            raise ParameterError(name, limit)


def _token(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise ParameterError("logit_bias", f"must map token ids to numbers, got the key {shown(key)}")
    return int(key)
