"""What `LLM` and `AsyncLLM` have in common: an open engine, its loop, and the making of requests."""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ChatTemplateError, EngineClosedError, EngineError, RequestError, shown
from .engine import Engine
from .engine_loop import EngineLoop
from .loading import load
from .manifest import Manifest
from .runtime_config import RuntimeConfig
from .sampling_params import SamplingParams
from .structured_output.params import StructuredOutputsParams

if TYPE_CHECKING:
    from .snapshot import EngineStats

Prompt = str | Sequence[int]
"""Text, or token ids."""
Message = Mapping[str, Any]
"""A chat message: role, content, and whatever else the model's template reads."""


class EngineClient:
    """A loaded engine, which a thread of its own steps.

    `options` are fields of RuntimeConfig, in place of a `config`. `verify=False` skips the digests of the engine's
    files. Raises EngineError when the folder is damaged or does not fit this machine.
    """

    def __init__(
        self,
        engine: str | Path,
        config: RuntimeConfig | None = None,
        *,
        verify: bool = True,
        max_queued: int | None = None,
        **options: Any,
    ) -> None:
        loaded = load(engine, _config(config, options), verify=verify)
        self.manifest: Manifest = loaded.manifest
        self.tokenizer = loaded.tokenizer
        self.engine: Engine = loaded.engine
        self._admission = loaded.admission
        self._loop = EngineLoop(loaded.engine, max_queued)

    @property
    def default_sampling_params(self) -> SamplingParams:
        """What the checkpoint's generation config advises; used where none are given."""
        return SamplingParams().replace(**self.manifest.model.generation_defaults)

    def render_chat(self, messages: Sequence[Message], **template_options: Any) -> str:
        """A conversation as the prompt that the model's chat template makes of it; see `ChatTemplate.render`."""
        if self.manifest.model.chat_template_error:
            raise ChatTemplateError(self.manifest.model.chat_template_error)
        template = self.tokenizer.chat_template
        if template is None:
            raise RequestError("this model has no chat template: use generate with a prompt in the model's own format")
        require_list("messages", messages)
        return template.render(messages, **template_options)

    def encode(self, prompt: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a prompt. Raises RequestError for one that the engine cannot take, however it is tokenized."""
        return self._admission.encode(prompt, add_special_tokens=add_special_tokens)

    def compile_form(self, form: StructuredOutputsParams) -> None:
        """Compile a form now, in the caller's thread, so that requests for it are submitted without a wait.

        Raises RequestError for what cannot be compiled.
        """
        self._admission.forms.compile(form)

    @property
    def refusal(self) -> EngineClosedError | None:
        """Why no request is taken any more; None while they are."""
        return self._loop.refusal

    def stats(self) -> "EngineStats":
        """Counts of this moment, and totals since the engine was opened; does not wait for a step."""
        from .snapshot import engine_stats  # which most runs never ask for

        return engine_stats(self.engine, self.manifest.kv_cache.block_size, self._loop.num_arriving)

    def close(self) -> None:
        """Free the engine, after the step under way. Whoever waits for a request gets EngineClosedError, as does any
        later use."""
        self._loop.close()


def require_list(name: str, value: object) -> None:
    """Raise RequestError for what is no list."""
    if not isinstance(value, list | tuple | array):
        raise RequestError(f"{name} must be a list, got {type(value).__name__}")


def _config(config: RuntimeConfig | None, options: Mapping[str, Any]) -> RuntimeConfig:
    if config is not None and options:
        raise EngineError(f"give a config or options, not both: {', '.join(options)}")
    known = RuntimeConfig.__dataclass_fields__
    for name in options:
        if name not in known:
            raise EngineError(f"unknown option {shown(name)}; known are {', '.join(known)}")
    return config or RuntimeConfig(**options)
