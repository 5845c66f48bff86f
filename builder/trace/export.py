"""Run a model on packed tokens and record what it does, as a PyTorch program with symbolic sizes T and R."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ...errors import UnsupportedModelError, reason
from . import aten_complex, aten_elementwise, aten_math, aten_shape, ops, rotary  # noqa: F401  (handlers register)
from .convert import unsupported_operators
from .experts import own_experts
from .grouped_experts import replace_grouped_experts
from .in_place import replace_in_place
from .kernel_functions import opaque_functions
from .modeling_modules import sorted_sets
from .own_attention import replace_own_attention
from .own_convolutions import replace_own_convolutions
from .own_positions import replace_own_positions

# What torch.export says of a loop over tokens, or of chunks of them.
_LIMITED_LENGTH = "Constraints violated (T)"
_FIXED_LENGTH = ("specialized it to be a constant", _LIMITED_LENGTH)

INPUT_NAMES = ("input_ids", "position_ids", "logits_rows")


class Packed(nn.Module):
    """A causal language model over one row of packed tokens: ids [T], positions [T], rows [R] -> logits [R, V]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.wrapped = model
        accepted = inspect.signature(model.forward).parameters
        if "position_ids" not in accepted and "kwargs" not in accepted:
            raise UnsupportedModelError(f"{type(model).__name__} takes no position_ids, so it cannot pack sequences")
        self._keeps_rows = "logits_to_keep" in accepted

    def forward(self, input_ids: Tensor, position_ids: Tensor, logits_rows: Tensor) -> Tensor:
        more: dict[str, Any] = {"logits_to_keep": logits_rows} if self._keeps_rows else {}
        out = self.wrapped(input_ids=input_ids[None], position_ids=position_ids[None], use_cache=False, **more)
        return out.logits[0] if self._keeps_rows else out.logits[0][logits_rows]


def export(model: nn.Module, mode: FakeTensorMode, max_seq_len: int) -> torch.export.ExportedProgram:
    """Export a model whose parameters are fake tensors of `mode`. Every operator left has a handler in `convert`.

    Models with tables by position accept no more tokens than those have; such are exported for sequences of up to
    `max_seq_len`.
    """
    with torch.no_grad(), mode:
        inputs = tuple(torch.zeros(size, dtype=torch.int64) for size in (12, 12, 3))
    try:
        with (
            torch.no_grad(),
            ops.opaque_linear(),
            rotary.fused_rotary(model),
            sorted_sets(model),
            opaque_functions(model),
        ):
            program = _export(Packed(model), inputs, max_seq_len)
    except Exception as error:
        raise UnsupportedModelError(_reason(model, error)) from error
    replace_in_place(program)
    replace_grouped_experts(program)
    program.graph.eliminate_dead_code(_has_effect)
    try:
        rotary.verify(program)
        program = replace_own_attention(program, max_seq_len)
        replace_own_convolutions(program)
        replace_own_positions(program)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{type(model).__name__}: {error}") from error
    return _decompose(model, program)


def _export(packed: Packed, inputs: tuple[Tensor, ...], max_seq_len: int) -> torch.export.ExportedProgram:
    def attempt(**limits: int) -> torch.export.ExportedProgram:
        tokens, rows = torch.export.Dim("T", min=1, **limits), torch.export.Dim("R", min=1)
        return torch.export.export(packed, inputs, dynamic_shapes=({0: tokens}, {0: tokens}, {0: rows}), strict=False)

    try:
        return attempt()
    except UserError as error:
        if _LIMITED_LENGTH not in str(error) or max_seq_len <= len(inputs[0]) + 1:
            raise
    return attempt(max=max_seq_len - 1)  # one less: tensors that are as long as a table take another path


def _has_effect(node: torch.fx.Node) -> bool:
    target = node.target
    return node.op in ("placeholder", "output") or (
        isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    )


def _reason(model: nn.Module, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnsupportedModelError):
            return f"{type(model).__name__}: {cause}"
        cause = cause.__cause__ or cause.__context__
    name = type(model).__name__
    if any(sign in str(error) for sign in _FIXED_LENGTH):
        return (
            f"{name} fixes the number of tokens, as a recurrence or a scan over them does: an operation that engines "
            "lack, for between tokens they know attention alone"
        )
    if (found := own_experts(model)) is not None:
        return f"{name} has {found}"
    if isinstance(error, GuardOnDataDependentSymNode):
        return f"{name} lets the values of tokens decide which operations it computes, which engines cannot"
    return f"{name} cannot be traced: {type(error).__name__}: {reason(error)}"


def _decompose(model: nn.Module, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Take apart operators that have no handler, and those that write in place. Most models have none."""
    for _ in range(3):
        unsupported = unsupported_operators(program)
        if not unsupported:
            return program
        table = torch.export.default_decompositions()
        wanted = {op: table.get(op, decomposition_table.get(op)) for op in unsupported}
        try:
            program = program.run_decompositions({op: how for op, how in wanted.items() if how is not None})
        except Exception as error:  # PyTorch cannot take these apart either
            raise _no_onnx_form(model, unsupported) from error
        program.graph.eliminate_dead_code(_has_effect)
    raise _no_onnx_form(model, unsupported_operators(program))


def _no_onnx_form(model: nn.Module, operators: set[Any]) -> UnsupportedModelError:
    if (found := own_experts(model)) is not None:
        return UnsupportedModelError(f"{type(model).__name__} has {found}")
    names = ", ".join(sorted(map(str, operators)))
    return UnsupportedModelError(f"{type(model).__name__} uses operators that have no ONNX form here: {names}")
