"""Text generation from an engine folder."""

import logging
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from ..errors import ChatTemplateError, EngineError, RequestError, shown
from .admission import Admission
from .batcher.policies import CapacityPolicy
from .engine import Engine
from .engine_dir import open_engine
from .executors.registry import open_executor
from .kv_cache.block_hash import BlockHasher
from .kv_cache.manager import KvCacheManager
from .kv_cache.sizing import num_blocks
from .manifest import Manifest
from .outputs import CompletionOutput, RequestOutput
from .request import Request
from .sampling_params import SamplingParams
from .tokenizer import load_tokenizer

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)

Prompt = str | Sequence[int]
"""Text, or token ids."""
Message = Mapping[str, Any]
"""A chat message: role, content, and whatever else the model's template reads."""


class LLM:
    """A loaded engine.

    Threads may share it: their requests are batched together. `threads` defaults to the physical cores available,
    `kv_cache_memory` (bytes) to what max_batch_size sequences of max_seq_len need, within half of the available memory.
    `prefix_cache=False`: no request reuses what an earlier one left in the KV cache.
    Raises EngineError when the folder is damaged or does not fit this machine. `verify=False` skips the digests.
    """

    def __init__(
        self,
        engine: str | Path,
        *,
        threads: int | None = None,
        kv_cache_memory: int | None = None,
        capacity_policy: CapacityPolicy | str = CapacityPolicy.GUARANTEED_NO_EVICT,
        prefix_cache: bool = True,
        verify: bool = True,
    ) -> None:
        policy = _policy(capacity_policy)
        folder = open_engine(engine, verify=verify)
        self.manifest: Manifest = folder.manifest
        limits, kv_spec = self.manifest.limits, self.manifest.kv_cache
        blocks = num_blocks(kv_spec, limits, kv_cache_memory)
        self.tokenizer = load_tokenizer(folder.tokenizer)
        if self.manifest.model.chat_template_error:
            log.warning("%s: %s; chats are refused, prompts work", engine, self.manifest.model.chat_template_error)
        executor = open_executor(folder.path, folder.manifest, blocks, threads)
        long_rope_after = self.manifest.model.long_rope_after
        hasher = BlockHasher(self.manifest.digest, kv_spec.block_size, long_rope_after) if prefix_cache else None
        kv = KvCacheManager(kv_spec, blocks, limits.max_num_tokens, hasher)
        self.engine = Engine(executor, kv, limits, policy, long_rope_after)
        self._admission = Admission(self.manifest, self.tokenizer, kv)
        self._lock = threading.RLock()

    @property
    def default_sampling_params(self) -> SamplingParams:
        """What the checkpoint's generation config advises; used where none are given."""
        return SamplingParams().replace(**self.manifest.model.generation_defaults)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: Sequence[int] | None = None,
        add_special_tokens: bool = True,
    ) -> list[RequestOutput]:
        """Complete prompts together; outputs come in their order.

        `sampling_params` is for all or one for each; so is `priority` (lower goes first). `add_special_tokens` puts
        around a text what the tokenizer puts there, unless the text already begins with it, as a rendered chat may.
        Raises RequestError before anything runs when one of them cannot be served, EngineError when the engine failed.
        """
        return self._run(_prompt_list(prompts), sampling_params, priority, add_special_tokens)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: Sequence[int] | None = None,
        add_special_tokens: bool = False,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several. `template_options` go to `render_chat`.

        Templates write special tokens themselves, so none are added unless `add_special_tokens` asks for it.
        """
        _require_list("messages", messages)
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts = [self.render_chat(conversation, **template_options) for conversation in conversations]  # type: ignore
        return self._run(prompts, sampling_params, priority, add_special_tokens)

    def render_chat(self, messages: Sequence[Message], **template_options: Any) -> str:
        """A conversation as the prompt that the model's chat template makes of it; see `ChatTemplate.render`."""
        if self.manifest.model.chat_template_error:
            raise ChatTemplateError(self.manifest.model.chat_template_error)
        template = self.tokenizer.chat_template
        if template is None:
            raise RequestError("this model has no chat template: use generate with a prompt in the model's own format")
        _require_list("messages", messages)
        return template.render(messages, **template_options)

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        add_special_tokens: bool = True,
    ) -> Iterator[CompletionOutput]:
        """What each step adds to the output, its text empty where it must be held back. Closing the iterator aborts."""
        given = self.default_sampling_params if sampling_params is None else sampling_params
        (params,) = _one_each("sampling_params", given, SamplingParams, 1)
        request = self._admission.admit(prompt, params, priority=priority, add_special_tokens=add_special_tokens)
        return self._follow(request)

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        add_special_tokens: bool = False,
        **template_options: Any,
    ) -> Iterator[CompletionOutput]:
        """`stream` for a conversation, with the options of `chat`."""
        prompt = self.render_chat(messages, **template_options)
        return self.stream(prompt, sampling_params, priority=priority, add_special_tokens=add_special_tokens)

    def compute_logits(self, token_ids: Sequence[int], chunks: Sequence[int] | None = None) -> "np.ndarray":
        """Logits after each token of a prompt, float32 [len(token_ids), vocab_size]; see `logits.compute_logits`."""
        from .logits import compute_logits

        checked = self._admission.checked_ids(token_ids)
        if chunks is not None:
            _require_list("chunks", chunks)
        with self._lock:
            return compute_logits(self.engine, checked, chunks)

    def close(self) -> None:
        """Free the engine. Whoever waits for an unfinished request gets EngineError, as does any later use."""
        with self._lock:
            self.engine.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(
        self,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: Sequence[int] | None,
        add_special_tokens: bool,
    ) -> list[RequestOutput]:
        default = self.default_sampling_params if sampling_params is None else sampling_params
        params = _one_each("sampling_params", default, SamplingParams, len(prompts))
        priorities = _one_each("priority", 0 if priority is None else priority, int, len(prompts))
        requests = [
            self._admission.admit(prompt, param, priority=rank, add_special_tokens=add_special_tokens)
            for prompt, param, rank in zip(prompts, params, priorities, strict=True)
        ]
        try:
            for request in requests:
                self._add(request)
            for request in requests:
                while not request.finished:
                    self._advance(request)
        finally:
            self._abort(requests)
        for request in requests:
            _raise_failure(request)
        return [request.result() for request in requests]

    def _follow(self, request: Request) -> Iterator[CompletionOutput]:
        tokens = characters = 0
        try:
            self._add(request)
            while (piece := self._next_piece(request, tokens, characters)) is not None:
                tokens, characters = tokens + len(piece.token_ids), characters + len(piece.text)
                yield piece
            _raise_failure(request)
        finally:
            self._abort([request])

    def _next_piece(self, request: Request, tokens: int, characters: int) -> CompletionOutput | None:
        """What is new after so many output tokens and characters, once there is something; None at the end."""
        while True:
            with self._lock:  # also to read: another thread's step must not be seen half done
                self.engine.settle()
                if request.num_output == tokens and not request.finished:
                    self.engine.step()
                if request.num_output > tokens:
                    return request.output(tokens, characters)
                if request.finished:
                    return None

    def _add(self, request: Request) -> None:
        with self._lock:
            self.engine.add(request)

    def _advance(self, request: Request) -> None:
        with self._lock:
            if not request.finished:  # another thread may have taken the last step
                self.engine.step()

    def _abort(self, requests: Sequence[Request]) -> None:
        self.engine.abort(requests)
        with self._lock:
            self.engine.settle()


def _raise_failure(request: Request) -> None:
    if isinstance(request.error, EngineError):
        raise request.error
    if request.error is not None:
        raise EngineError(f"request {request.request_id} failed: {request.error!r}") from request.error


def _prompt_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    _require_list("prompts", prompts)
    if prompts and isinstance(prompts[0], SupportsIndex):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def _require_list(name: str, value: object) -> None:
    if not isinstance(value, list | tuple | array):
        raise RequestError(f"{name} must be a list, got {type(value).__name__}")


def _one_each(name: str, value: Any, kind: type, number: int) -> Sequence[Any]:
    if isinstance(value, kind):
        return [value] * number
    _require_list(name, value)
    if len(value) != number:
        raise RequestError(f"{name} must be one for all or one for each of the {number} prompts, got {len(value)}")
    for item in value:
        if not isinstance(item, kind):
            raise RequestError(f"{name} must hold {kind.__name__} values, got {type(item).__name__}")
    return value


def _policy(value: CapacityPolicy | str) -> CapacityPolicy:
    if isinstance(value, str) and value in list(CapacityPolicy):
        return CapacityPolicy(value)
    raise EngineError(f"capacity_policy must be one of {', '.join(CapacityPolicy)}, got {shown(value)}")
