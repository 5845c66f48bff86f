"""C++ text of one kernel call: template arguments are the shapes, pointers are offsets known at build time."""

import re
from dataclasses import dataclass, field

from ....plugins.cpu.isa import Isa
from ....plugins.linear.cpu.packing import LinearLayout
from ...lowering.program import (
    AttentionCall,
    AxisCall,
    CacheLayer,
    Call,
    EmbeddingCall,
    GatedMlpCall,
    GatherCall,
    LinearCall,
    LinearWeight,
    LoopCall,
    MatMulCall,
    NormCall,
    RotaryCall,
)
from ...lowering.views import Buffer, Home, View
from . import emit_loops
from .emit_loops import float_literal

ACTIVATIONS = {
    "": "Identity",
    "gelu": "Gelu",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "relu": "Relu",
    "relu2": "Relu2",
    "quick_gelu": "QuickGelu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
STYLES = {"neox": "kNeox", "gptj": "kGptj", "gptj_to_neox": "kGptjToNeox"}


def layout_of(weight: LinearWeight, isa: Isa) -> LinearLayout:
    scheme, gated = weight.scheme, len(weight.sources) == 2
    return LinearLayout(weight.n, weight.k, scheme.weight, isa, gated=gated, activation=scheme.activation)


@dataclass
class CallEmitter(emit_loops.Pointers):
    """Writes calls one after another; a buffer is declared where it is first used."""

    isa: Isa
    block_size: int
    layers: dict[int, CacheLayer]
    group_of_layer: dict[int, int]
    lines: list[str] = field(default_factory=list)
    attention_types: list[str] = field(default_factory=list)
    scratch: dict[str, None] = field(default_factory=dict)  # expressions, in bytes
    _names: dict[Buffer, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _heads: int = 0

    def call(self, call: Call) -> None:
        body: list[str] = []
        self._declarations: list[str] = []
        match call:
            case LinearCall():
                self._linear(call, body)
            case GatedMlpCall():
                self._gated_mlp(call, body)
            case AttentionCall():
                self._attention(call, body)
            case RotaryCall():
                self._rotary(call, body)
            case NormCall():
                self._norm(call, body)
            case EmbeddingCall():
                self._embedding(call, body)
            case LoopCall():
                emit_loops.loop(call, self, body)
            case AxisCall():
                emit_loops.along_axis(call, self, body)
            case GatherCall():
                emit_loops.gather(call, self, body)
            case MatMulCall():
                emit_loops.matmul(call, self, body)
            case _:
                raise TypeError(f"no C++ for {type(call).__name__}")
        self.lines += [f"  // {_comment(call.name)}", *self._declarations, *body]

    # ---- pointers

    def pointer(self, view: View) -> str:
        """The name of the view's buffer in the emitted code; its offset is not included."""
        buffer = view.buffer
        if buffer not in self._names:
            self._names[buffer] = name = self._unique(buffer.name)
            kind, offset = buffer.dtype.cpp, buffer.offset
            if buffer.home is Home.INPUT:
                line = f"const int32_t* const {name} = s.{buffer.name};"
            elif buffer.home is Home.WEIGHTS:
                line = f"const {kind}* const {name} = reinterpret_cast<const {kind}*>(w + {offset});"
            else:
                rows = "" if buffer.symbol.value == "1" else f"{buffer.symbol.value}, "
                shape = f"[{rows}{buffer.row_size}]"
                line = f"{kind}* const {name} = reinterpret_cast<{kind}*>(arena + {offset});  // {shape}"
            self._declarations.append("  " + line)
        return self._names[buffer]

    def _unique(self, text: str) -> str:
        base = re.sub(r"\W+", "_", text).strip("_")
        base = base if base and not base[0].isdigit() else f"v_{base}"
        name, number = base + "_", 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def _at(self, view: View) -> str:
        return f"{self.pointer(view)} + {view.offset}" if view.offset else self.pointer(view)

    def _rows(self, view: View) -> str:
        return f"{{{self._at(view)}, {view.strides[0]}}}"

    def _heads_of(self, view: View) -> str:
        return f"{{{self._at(view)}, {view.strides[0]}, {view.strides[1]}}}"

    def _maybe(self, view: View | None) -> str:
        return "nullptr" if view is None else self._at(view)

    # ---- calls

    def _linear(self, call: LinearCall, body: list[str]) -> None:
        layout = layout_of(call.weight, self.isa)
        types = f"{layout.cpp_type}, {layout.n}, {layout.k}"
        self.scratch[f"es::linear_scratch_bytes<{types}>({self._bound(call.rows.cpp)}, threads)"] = None
        residual = "{nullptr, 0}" if call.residual is None else self._rows(call.residual)
        body.append(
            f"  es::linear<{types}, es::{ACTIVATIONS[call.activation]}>(pool, w + {call.weight.offset}, "
            f"{self._rows(call.x)}, {self._maybe(call.bias)}, {residual}, {self._rows(call.y)}, {call.rows.cpp}, "
            f"scratch{self._input_scale(call.weight)});"
        )

    def _gated_mlp(self, call: GatedMlpCall, body: list[str]) -> None:
        layout = layout_of(call.weight, self.isa)
        types = f"{layout.cpp_type}, {layout.n}, {layout.k}"
        self.scratch[f"es::gated_mlp_scratch_bytes<{types}>({self._bound(call.rows.cpp)}, threads)"] = None
        body.append(
            f"  es::gated_mlp<{types}, es::{ACTIVATIONS[call.activation]}>(pool, w + {call.weight.offset}, "
            f"{self._rows(call.x)}, {self._maybe(call.gate_bias)}, {self._maybe(call.up_bias)}, {self._rows(call.y)}, "
            f"{call.rows.cpp}, scratch{self._input_scale(call.weight)});"
        )

    def _input_scale(self, weight: LinearWeight) -> str:
        return "" if weight.input_scale is None else f", {float_literal(weight.input_scale)}"

    def _bound(self, rows: str) -> str:
        """`rows` at its largest."""
        return rows.replace("T", "kLimits.max_num_tokens").replace("R", "kLimits.max_batch_size")

    def _attention(self, call: AttentionCall, body: list[str]) -> None:
        name = self.attention_type(self.layers[call.layer])
        self.scratch[f"{name}::scratch_floats(threads, kLimits.max_num_tokens) * 4"] = None
        body.append(
            f"  {name}::run(pool, {self._heads_of(call.q)}, {self._heads_of(call.k)}, {self._heads_of(call.v)}, "
            f"{self._heads_of(call.out)}, e.kv[{call.layer}], steps[{self.group_of_layer[call.layer]}], "
            f"{float_literal(call.scale)}, {float_literal(call.softcap)}, {call.window}, {self._maybe(call.sinks)}, "
            "reinterpret_cast<float*>(scratch));"
        )

    def attention_type(self, layer: CacheLayer) -> str:
        """The alias of the kernel that attends in a layer."""
        sizes = f"{layer.heads}, {layer.kv_heads}, {layer.k_dim}, {layer.v_dim}, {self.block_size}"
        kind = f"es::PagedAttention<{layer.cpp_element}, {sizes}>"
        if kind not in self.attention_types:
            self.attention_types.append(kind)
        return f"Attention{self.attention_types.index(kind)}"

    def _rotary(self, call: RotaryCall, body: list[str]) -> None:
        _, heads, size = call.x.shape
        body.append(
            f"  es::rotary<es::RotaryStyle::{STYLES[call.style]}, {heads.count}, {size.count}, {call.rotary_dim}, "
            f"{call.cos_stride}>(pool, {self._heads_of(call.x)}, {self._rows(call.cos)}, {self._rows(call.sin)}, "
            f"{self._heads_of(call.y)}, {call.x.shape[0].cpp});"
        )

    def _norm(self, call: NormCall, body: list[str]) -> None:
        bias = f"{self._maybe(call.bias)}, " if "layer_norm" in call.kind else ""
        scale = f"{self._maybe(call.weight)}, {bias}{float_literal(call.epsilon)}"
        if call.skip is not None and call.total is not None:
            views = f"{self._rows(call.x)}, {self._rows(call.skip)}"
            results = f"{self._rows(call.y)}, {self._rows(call.total)}"
            types = str(call.x.shape[1].count)
        else:
            views, results = self._heads_of(call.x), self._heads_of(call.y)
            types = f"{call.x.shape[1].count}, {call.x.shape[2].count}"
        body.append(f"  es::{call.kind}<{types}>(pool, {views}, {scale}, {results}, {call.rows.cpp});")

    def _embedding(self, call: EmbeddingCall, body: list[str]) -> None:
        table = call.table
        if isinstance(table, LinearWeight):
            kernel, element, offset = "packed_embedding", layout_of(table, self.isa).cpp_type, table.offset
        else:
            kernel, element, offset = "embedding", "es::Bf16" if table.bf16 else "es::Fp32", table.buffer.offset
        body.append(
            f"  es::{kernel}<{element}, {call.entries}, {call.y.shape[1].count}>(pool, w + {offset}, "
            f"{self._at(call.ids)}, {self._rows(call.y)}, {call.rows.cpp});"
        )


def _comment(text: str) -> str:
    """One line of text that cannot end a comment or continue onto the next line."""
    return re.sub(r"[^\x20-\x7e]", "?", text).rstrip("\\ ")[:200]
