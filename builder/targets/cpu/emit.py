"""Program to engine.cpp: a readable list of kernel calls behind the C interface of abi.h."""

from dataclasses import dataclass

from ....plugins.attention.cpu.kernel import kernel_type
from ....plugins.cpu.isa import Isa
from ....runtime.manifest import LONG_ROPE
from ...build_options import BuildConfig
from ...lowering.program import Program
from .source import loops
from .source.call import CpuCall
from .source.writer import Writer

_ALWAYS = (
    "attention/cpu/paged_attention.h",
    "cpu/sequence_state.h",
    "engine/loops.h",
    "engine/runtime.h",
    "engine/state.h",
)


@dataclass(frozen=True)
class EngineFacts:
    """What the emitted source says beside the calls."""

    title: str
    isa: Isa
    max_seq_len: int
    max_logits_rows: int
    long_rope: bool = False  # whether positions may have LONG_ROPE added


def emit(program: Program, config: BuildConfig, facts: EngineFacts) -> str:
    """The source of the engine; depends on shapes, offsets and constants, never on the values of weights."""
    groups = program.groups
    cache_groups = {layer.index: g for g, group in enumerate(groups) for layer in group.layers}
    writer = Writer(facts.isa, config.kv_block_size, cache_groups)
    for call in program.calls:
        writer.begin(call.name)
        if isinstance(call, CpuCall):
            call.write(writer)
        else:
            loops.write(call, writer)
        writer.end()
    assert program.logits is not None
    return _TEMPLATE.format(
        title=facts.title,
        includes="\n".join(f'#include "{header}"' for header in headers_for(program)),
        limits=f"{config.max_num_tokens}, {config.max_batch_size}, {facts.max_logits_rows}, "
        f"{facts.max_seq_len}, {program.vocab_size}, "
        f"{config.kv_block_size}, {len(groups)}, {LONG_ROPE if facts.long_rope else 0}",
        state_bytes=program.state_bytes,
        weights_bytes=program.weights_bytes,
        arena_bytes=program.arena_bytes,
        logits_offset=program.logits.buffer.offset,
        windows=", ".join(str(group.window) for group in groups) or "0",
        num_layers=len(program.layers),
        num_groups=len(groups),
        layers="\n".join(_layers(program, writer)),
        aliases="\n".join(
            f"using {name}{i} = {kind};" for name, kinds in writer.aliases.items() for i, kind in enumerate(kinds)
        ),
        scratch="\n".join(f"  bytes = std::max<int64_t>(bytes, {item});" for item in writer.scratch),
        requirements=_requirements(facts.isa),
        calls="\n".join(writer.lines),
    )


def headers_for(program: Program) -> list[str]:
    """The headers of the kernels that are called, and those that every engine needs."""
    return sorted({*_ALWAYS, *(call.header for call in program.calls if isinstance(call, CpuCall))})


def _layers(program: Program, writer: Writer) -> list[str]:
    """Every cache layer: {group, bytes of a block, where in the weights the scales of its keys and values lie}."""
    lines = []
    for layer in program.layers:
        views = (layer.key_scales, layer.value_scales)
        scales = ", ".join("-1" if view is None else str(view.buffer.offset) for view in views)
        name = kernel_type(layer, writer)
        lines.append(f"    {{{writer.cache_groups[layer.index]}, {name}::block_bytes, {scales}}},")
    return lines


def _requirements(isa: Isa) -> str:
    names = {"avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
    lines = [
        f'  if (!__builtin_cpu_supports("{names.get(flag, flag)}")) throw es::engine::Error("this CPU lacks {flag}");'
        for flag in sorted(isa.cpu_flags)
        if not flag.startswith("amx") and flag != "f16c"
    ]
    if isa is Isa.AMX:
        lines.append("  es::engine::request_amx();")
    return "\n".join(lines)


_TEMPLATE = """\
// {title}
// Emitted by enginesmith: the network's kernel calls in order, with shapes, offsets and constants known.
#include <algorithm>
#include <string>
#include <vector>

{includes}

namespace {{

// max_num_tokens, max_batch_size, max_logits_rows, max_seq_len, vocab_size, block_size, num_groups, position_flags
constexpr es::engine::Limits kLimits{{{limits}}};
constexpr uint64_t kWeightsBytes = {weights_bytes};
constexpr int64_t kArenaBytes = {arena_bytes};
constexpr int64_t kStateBytes = {state_bytes};  // of a sequence's slot
constexpr int64_t kLogits = {logits_offset};
constexpr int32_t kWindows[] = {{{windows}}};

{aliases}

struct CacheLayer {{
  int32_t group;
  int64_t block_bytes;
  int64_t key_scales, value_scales;  // -1: none beforehand
}};
constexpr int kNumLayers = {num_layers}, kNumGroups = {num_groups};
constexpr CacheLayer kLayers[kNumLayers + 1] = {{
{layers}
}};

int64_t scratch_bytes(int threads) {{
  int64_t bytes = 0;
{scratch}
  return bytes;
}}

void check_cpu() {{
  __builtin_cpu_init();
{requirements}
}}

}}  // namespace

struct EsEngine {{
  explicit EsEngine(const EsOpenArgs& args)
      : weights(args.weights), pool(args.threads), arena(kArenaBytes), scratch(scratch_bytes(args.threads)),
        slots(kLimits.max_batch_size, kStateBytes) {{
    num_blocks.assign(args.num_blocks, args.num_blocks + args.num_groups);
    int64_t strides[kNumGroups + 1] = {{}};  // of a block: all layers of its group side by side
    for (int layer = 0; layer < kNumLayers; ++layer) strides[kLayers[layer].group] += kLayers[layer].block_bytes;
    uint8_t* next[kNumGroups + 1];
    for (int g = 0; g < kNumGroups; ++g) {{
      cache.emplace_back(num_blocks[g] * strides[g]);
      next[g] = cache.back().data();
    }}
    for (int layer = 0; layer < kNumLayers; ++layer) {{
      const CacheLayer& own = kLayers[layer];
      kv[layer] = {{next[own.group], strides[own.group], floats(own.key_scales), floats(own.value_scales)}};
      next[own.group] += own.block_bytes;
    }}
  }}

  const float* floats(int64_t offset) const {{
    return offset < 0 ? nullptr : reinterpret_cast<const float*>(weights + offset);
  }}

  const uint8_t* weights;
  es::ThreadPool pool;
  es::engine::Memory arena, scratch;
  es::engine::StateSlots slots;
  std::vector<int32_t> num_blocks;
  std::vector<es::engine::Memory> cache;
  es::KvLayer kv[kNumLayers + 1];
}};

namespace {{

// The network, one kernel call a node. T tokens, R rows of logits.
void step(EsEngine& e, const EsStep& s) {{
  es::ThreadPool& pool = e.pool;
  const uint8_t* const w = e.weights;
  uint8_t* const arena = e.arena.data();
  uint8_t* const scratch = e.scratch.data();
  const int64_t T = s.num_tokens, R = s.num_rows;
  es::AttentionStep steps[kNumGroups + 1];
  for (int g = 0; g < kNumGroups; ++g) {{
    steps[g] = {{s.num_tokens, s.num_seqs, s.max_blocks, s.query_start, s.context_length,
                s.block_table + static_cast<int64_t>(g) * s.num_seqs * s.max_blocks}};
  }}
  const es::StateStep state_step{{s.num_seqs, s.query_start, s.state_slots}};

{calls}
}}

}}  // namespace

uint32_t es_abi_version(void) {{ return kEsAbiVersion; }}

const char* es_last_error(void) {{ return es::engine::last_error; }}

int es_open(const EsOpenArgs* args, EsEngine** engine) {{
  return es::engine::guarded([&] {{
    check_cpu();
    if (args->weights_bytes != kWeightsBytes) {{
      throw es::engine::Error("weights.bin has %llu bytes; this engine was compiled for %llu",
                      static_cast<unsigned long long>(args->weights_bytes),
                      static_cast<unsigned long long>(kWeightsBytes));
    }}
    es::engine::require(reinterpret_cast<uintptr_t>(args->weights) % 64 == 0, "weights: bytes past a 64-byte boundary",
                reinterpret_cast<uintptr_t>(args->weights) % 64, 0);
    es::engine::require(args->num_groups == kLimits.num_groups, "num_groups", args->num_groups, kLimits.num_groups);
    for (int g = 0; g < args->num_groups; ++g)
      es::engine::require(args->num_blocks[g] >= 1, "num_blocks", args->num_blocks[g], 1);
    es::engine::require(args->threads >= 1, "threads", args->threads, 1);
    *engine = new EsEngine(*args);
  }});
}}

void es_close(EsEngine* engine) {{ delete engine; }}

int es_step(EsEngine* engine, const EsStep* s) {{
  return es::engine::guarded([&] {{
    es::engine::check_step(kLimits, *s, kWindows, engine->num_blocks.data());
    engine->slots.begin(engine->pool, *s);
    step(*engine, *s);
    engine->slots.end(*s);
  }});
}}

const float* es_logits(EsEngine* engine) {{ return reinterpret_cast<const float*>(engine->arena.data() + kLogits); }}

void es_parallel(EsEngine* engine, EsParallel* parallel) {{
  *parallel = {{&engine->pool, engine->pool.threads(),
               [](void* pool, int64_t tasks, void (*task)(void*, int64_t, int32_t), void* context) {{
                 static_cast<es::ThreadPool*>(pool)->run(
                     tasks, [&](int64_t index, int worker) {{ task(context, index, worker); }});
               }}}};
}}
"""
