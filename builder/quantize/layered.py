"""A checkpoint's own Transformers class, run decoder layer by decoder layer on many sequences.

Only the weights of the decoder layer that is loaded are in memory, in float32, and around the decoder layers those of
the module that runs.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoint.weights import Weights
from ...errors import UnsupportedModelError
from ..network import Network
from ..trace.skeleton import make_skeleton
from .blocks import blocks_of

Parameters = MutableMapping[str, np.ndarray]


@dataclass(frozen=True)
class _Call:
    """What the model calls a decoder layer with besides its hidden states: masks, position embeddings and the like."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


class _Stop(Exception):
    """Ends a forward pass once the hidden states before the first decoder layer are known."""


_Replacement = Callable[[Tensor, _Call, int], Tensor]


class LayeredModel:
    """A model whose decoder layers run one at a time, on sequences of `length` tokens.

    `blocks` are the decoder layers' names, in order. `attention` is an implementation that Transformers knows. Raises
    UnsupportedModelError for a model that does not hand hidden states, and only these, from layer to layer.
    """

    def __init__(self, network: Network, weights: Weights, length: int, attention: str = "eager") -> None:
        self._weights, self._tied, self._length = weights, network.tied, length
        self._model = make_skeleton(network.config, length, attention)
        self.blocks = blocks_of(network.parameters)
        self._require_one_list()
        self._layers = [self._model.get_submodule(block) for block in self.blocks]
        inside = {id(module) for layer in self._layers for module in layer.modules()}
        for name, module in self._model.named_modules():
            if id(module) not in inside and _own_state(module):
                self._load_while_it_runs(name, module)
        self._calls = self._record()

    def load(self, index: int) -> Parameters:
        """Fill decoder layer `index`; gives its parameters as float32 arrays of their own, by their full names."""
        parameters = {name: self._value(name) for name in self._names(index)}
        self.assign(parameters)
        return parameters

    def assign(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Replace parameters of a decoder layer that is loaded; memory is shared with the arrays."""
        for name, value in parameters.items():
            module, leaf = self._place(name)
            _set_state(module, leaf, torch.from_numpy(value))

    def unload(self, index: int) -> None:
        """Let go of the weights of decoder layer `index`."""
        for name in self._names(index):
            module, leaf = self._place(name)
            _set_state(module, leaf, _state(module, leaf).to("meta"))

    def module(self, name: str) -> nn.Module:
        """A module by its path."""
        return self._model.get_submodule(name)

    def names(self) -> dict[nn.Module, str]:
        """Every module's path."""
        return {module: name for name, module in self._model.named_modules()}

    @torch.no_grad()
    def embed(self, tokens: np.ndarray) -> Tensor:
        """Hidden states [B, length, D] before the first decoder layer; tokens [B, length]."""
        found: list[Tensor] = []

        def stop(hidden: Tensor, call: _Call, index: int) -> Tensor:
            found.append(hidden)
            raise _Stop

        with suppress(_Stop):
            self._forward(tokens, stop)
        return found[0]

    @torch.no_grad()
    def run(self, index: int, hidden: Tensor) -> Tensor:
        """Decoder layer `index`, which must be loaded, on hidden states [B, length, D]."""
        call = self._calls[index]
        if len(hidden) > 1 and _holds_heads_of_one(call):
            return torch.cat([self.run(index, one[None]) for one in hidden])
        out = self._layers[index](hidden, *call.arguments, **call.keywords)
        return out[0] if isinstance(out, tuple) else out

    @torch.no_grad()
    def head(self, hidden: Tensor) -> Tensor:
        """Logits [B, length, vocabulary] of the hidden states after the last decoder layer."""
        return self._forward(np.zeros(hidden.shape[:2], np.int64), lambda _, call, index: hidden)

    def _require_one_list(self) -> None:
        parents = {block.rpartition(".")[0] for block in self.blocks}
        if len(parents) != 1 or not isinstance(self._model.get_submodule(min(parents)), nn.ModuleList):
            raise UnsupportedModelError(
                f"{type(self._model).__name__} has no single list of decoder layers (found: "
                f"{', '.join(sorted(parents)) or 'none'}), so it cannot be calibrated layer by layer; method rtn needs "
                "no calibration"
            )

    def _names(self, index: int) -> list[str]:
        """Full names of the parameters, and of the buffers that checkpoints store, of a decoder layer."""
        return [f"{self.blocks[index]}.{name}" for name in self._layers[index].state_dict()]

    def _value(self, name: str) -> np.ndarray:
        return np.array(self._weights.values(self._tied.get(name, name)), np.float32, order="C")

    def _place(self, name: str) -> tuple[nn.Module, str]:
        path, _, leaf = name.rpartition(".")
        return self._model.get_submodule(path), leaf

    def _load_while_it_runs(self, name: str, module: nn.Module) -> None:
        """Give a module outside the decoder layers its weights for the time of each of its calls."""
        own = {leaf: f"{name}.{leaf}" if name else leaf for leaf in _own_state(module)}
        empty = {leaf: _state(module, leaf) for leaf in own}

        def fill(*_: object) -> None:
            for leaf, full in own.items():
                _set_state(module, leaf, torch.from_numpy(self._value(full)))

        def clear(*_: object) -> None:
            for leaf, tensor in empty.items():
                _set_state(module, leaf, tensor)

        module.register_forward_pre_hook(fill)
        module.register_forward_hook(clear, always_call=True)

    def _forward(self, tokens: np.ndarray, replacement: _Replacement) -> Tensor:
        """Logits of the model's forward pass, in which `replacement` stands for every decoder layer."""
        with self._replaced(replacement):
            return self._model(input_ids=torch.from_numpy(np.asarray(tokens, np.int64)), use_cache=False).logits

    @contextmanager
    def _replaced(self, replacement: _Replacement) -> Iterator[None]:
        def forward_of(index: int, original: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*arguments: Any, **keywords: Any) -> Any:
                hidden, call = _split(arguments, keywords)
                out = replacement(hidden, call, index)
                with _meta_buffers(self._layers[index]):
                    return (out,) if _gives_tuple(original, hidden, call) else out

            return forward

        try:
            for index, layer in enumerate(self._layers):
                layer.forward = forward_of(index, layer.forward)
            yield
        finally:
            for layer in self._layers:
                layer.__dict__.pop("forward", None)

    @torch.no_grad()
    def _record(self) -> list[_Call]:
        """What every decoder layer is called with: found with two different sequences, for it must be the same."""
        first, second = (self._calls_for(token) for token in (0, 1))
        if not all(_equal(vars(a), vars(b)) for a, b in zip(first, second, strict=True)):
            raise self._not_a_chain("take other inputs that depend on the tokens")
        return first

    def _calls_for(self, token: int) -> list[_Call]:
        calls: list[_Call] = []
        given: list[Tensor] = []

        def record(hidden: Tensor, call: _Call, index: int) -> Tensor:
            if index != len(calls) or (given and hidden is not given[-1]):
                raise self._not_a_chain("do not hand hidden states to each other as they are")
            calls.append(call)
            given.append(hidden.clone())
            return given[-1]

        self._forward(np.full((1, self._length), token), record)
        if len(calls) != len(self.blocks):
            raise self._not_a_chain("do not all run")
        return calls

    def _not_a_chain(self, what: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{type(self._model).__name__}: its decoder layers {what}, so they cannot be calibrated one by one; method "
            "rtn needs no calibration"
        )


def _gives_tuple(original: Callable[..., Any], hidden: Tensor, call: _Call) -> bool:
    """Whether a decoder layer gives a tuple: tried on tensors without memory."""
    arguments, keywords = _to_meta((call.arguments, dict(call.keywords)))
    return isinstance(original(hidden.to("meta"), *arguments, **keywords), tuple)


@contextmanager
def _meta_buffers(layer: nn.Module) -> Iterator[None]:
    """While this holds, a layer's tables are without memory, as its weights are."""
    saved = [(module, module._buffers) for module in layer.modules()]
    try:
        for module, buffers in saved:
            module._buffers = {name: None if value is None else value.to("meta") for name, value in buffers.items()}
        yield
    finally:
        for module, buffers in saved:
            module._buffers = buffers


def _split(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Tensor, _Call]:
    """The hidden states, which come first or by name, and the rest."""
    if arguments:
        return arguments[0], _Call(arguments[1:], keywords)
    return keywords["hidden_states"], _Call((), {k: v for k, v in keywords.items() if k != "hidden_states"})


def _holds_heads_of_one(call: _Call) -> bool:
    """Whether a decoder layer is told something of every head of every sequence (a bias), here of a single one."""
    given = [*call.arguments, *call.keywords.values()]
    return any(isinstance(value, Tensor) and value.ndim > 2 and len(value) > 1 for value in given)


def _own_state(module: nn.Module) -> list[str]:
    """Names of a module's own parameters, and of its own buffers that checkpoints store."""
    buffers = [n for n, b in module._buffers.items() if b is not None and n not in module._non_persistent_buffers_set]
    return [name for name, parameter in module._parameters.items() if parameter is not None] + buffers


def _state(module: nn.Module, leaf: str) -> Tensor:
    value = module._parameters.get(leaf)
    return module.get_buffer(leaf) if value is None else value


def _set_state(module: nn.Module, leaf: str, value: Tensor) -> None:
    if leaf in module._parameters:
        module._parameters[leaf] = nn.Parameter(value.detach(), requires_grad=False)
    else:
        module._buffers[leaf] = value


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to("meta")
    if isinstance(value, tuple | list):
        return type(value)(_to_meta(item) for item in value)
    return {key: _to_meta(item) for key, item in value.items()} if isinstance(value, dict) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return a is b or bool(a == b)
