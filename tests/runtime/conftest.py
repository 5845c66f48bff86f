"""A toy engine folder that speaks the real ABI, and a tokenizer trained on the spot."""

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from enginesmith import integrity
from enginesmith.atomic import new_folder
from enginesmith.builder.targets.cpu.toolchain import compile_source, find_compiler
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.sampling.cpu.library import SOURCE
from enginesmith.runtime.engine_dir import write_engine
from enginesmith.runtime.executors.cpu_abi import ABI_VERSION
from enginesmith.runtime.executors.cpu_facts import CpuFacts
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.manifest import (
    KvCacheSpec,
    KvDtype,
    KvGroup,
    KvGroupKind,
    Limits,
    Manifest,
    ModelFacts,
    Quantization,
)

ROOT = Path(__file__).parents[2]
BLOCK, WINDOW = 4, 22
SPECIAL = ["<|end|>", "<|start|>"]
CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "Übergrößenträger café naïve",
    "日本語のテキスト",
    "🙂🙃🚀 emoji",
]


@pytest.fixture(scope="session")
def byte_level_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level BPE tokenizer of 300 tokens or so, two of them special, and a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    folder = tmp_path_factory.mktemp("byte_level")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>", "bos_token": {"content": "<|start|>"}}')
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}{{ bos_token }}assistant: {% endif %}"
    )
    return folder


@pytest.fixture(scope="session")
def byte_fallback_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SentencePiece-like tokenizer: "▁" for spaces, unknown characters as byte tokens."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyz.,é", "▁the", "▁fox", "he", "日"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("h", "e"), ("▁", "t")]
    vocabulary["▁t"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    folder = tmp_path_factory.mktemp("byte_fallback")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def toy_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Compiles the toy engine; the salt makes libraries that answer differently."""
    command = find_compiler().command
    folder = tmp_path_factory.mktemp("toy_library")

    def compile_toy(salt: int) -> Path:
        library = folder / f"engine{salt}.so"
        if not library.exists():
            defines = [f"-DTOY_SALT={salt}", "-DTOY_VOCAB=300", f"-DTOY_BLOCK={BLOCK}", f"-DTOY_WINDOW={WINDOW}"]
            options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-I", str(ROOT / "plugins")]
            source = str(Path(__file__).parent / "toy_engine.cpp")
            subprocess.run([*command, *options, *defines, source, "-o", str(library)], check=True)
        return library

    return compile_toy


@pytest.fixture(scope="session")
def toy_manifest() -> Manifest:
    """Small limits: prompts are chunked, batches are full, a full and a sliding-window cache group."""
    return Manifest(
        builder_version="test",
        model=ModelFacts(
            name="toy",
            architecture="ToyForCausalLM",
            model_type="toy",
            vocab_size=300,
            num_layers=2,
            num_parameters=0,
            eos_token_ids=(0, 40, 80),
            generation_defaults={"temperature": 0.5, "top_k": 40},
        ),
        limits=Limits(max_batch_size=6, max_num_tokens=16, max_seq_len=96),
        kv_cache=KvCacheSpec(
            block_size=BLOCK,
            dtype=KvDtype.FP32,
            groups=(
                KvGroup(kind=KvGroupKind.FULL, window=0, layers=(0,), bytes_per_block=8 * BLOCK),
                KvGroup(kind=KvGroupKind.SLIDING_WINDOW, window=WINDOW, layers=(1,), bytes_per_block=8 * BLOCK),
            ),
        ),
        quantization=Quantization(scheme="fp32", linear_layers={"fp32": 2}),
        target=CpuFacts(
            name="cpu",
            isa="avx2",
            cpu_flags=tuple(sorted(Isa.AVX2.cpu_flags)),
            library="cpu/engine.so",
            sampler="cpu/sampler.so",
            weights="weights.bin",
            weights_bytes=100,
            abi_version=ABI_VERSION,
            arena_bytes=0,
        ),
    )


@pytest.fixture(scope="session")
def make_toy_engine(
    toy_library: Callable[[int], Path], toy_manifest: Manifest, byte_level_tokenizer: Path
) -> Callable[..., Path]:
    """Writes the toy engine into a folder."""

    def make(target: Path, salt: int = 0) -> Path:
        with new_folder(target) as folder:
            (folder / "cpu").mkdir()
            shutil.copyfile(toy_library(salt), folder / "cpu" / "engine.so")
            shutil.copyfile(compile_source(SOURCE.read_text(), Isa.AVX2), folder / "cpu" / "sampler.so")
            (folder / "weights.bin").write_bytes(bytes(random.Random(0).randbytes(100)))
            shutil.copytree(byte_level_tokenizer, folder / "tokenizer")
            write_engine(folder, toy_manifest)
        return target

    return make


@pytest.fixture(scope="session")
def toy_engine(make_toy_engine: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy engine's folder, not to be changed."""
    return make_toy_engine(tmp_path_factory.mktemp("engines") / "toy.engine")


@pytest.fixture
def llm(toy_engine: Path) -> Iterator[LLM]:
    """A fresh LLM on the toy engine."""
    with LLM(toy_engine, threads=1) as llm:
        yield llm


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's memory of verified files out of it."""
    folder = tmp_path_factory.getbasetemp() / "verified"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(integrity, "cache_dir", lambda kind: folder)
