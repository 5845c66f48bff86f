"""The life of a recipe: source -> import -> quantize -> build with its check -> quality -> demo -> bench.

Every step leaves its result whole or not at all, and the journal beside the engine remembers which are done: run again,
a recipe goes on where it was interrupted.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..builder.build import build
from ..builder.evaluate.evaluate import evaluate
from ..builder.fingerprint import code_digest, stamp
from ..builder.quantize.quantize_options import QuantizeConfig
from ..builder.targets.registry import target_of
from ..checkpoint.checkpoint import open_checkpoint
from ..checkpoint.output import check_output
from ..checkpoint.sources import PypiFile, PypiSource, resolve
from ..progress import Progress
from ..runtime.engine_dir import MANIFEST, read_report
from ..runtime.llm import LLM
from ..runtime.outputs import CompletionOutput
from .journal import Journal
from .quality import describe, figures, require_quality
from .schema import Quality, Recipe, Source


@dataclass(frozen=True)
class Step:
    """A step that is done: its name, a line on what it gave, and whether it had been done before."""

    name: str
    detail: str
    skipped: bool


class Runner:
    """Runs one recipe. `output` is the engine folder; by default engines/<name>."""

    def __init__(self, recipe: Recipe, output: Path | None, progress: Progress) -> None:
        self.recipe = recipe
        self.output = output or Path("engines") / recipe.name
        self._progress = progress
        self._journal = Journal(self.output.parent / f".{self.output.name}.recipe.json")

    def prepare(self) -> Iterator[Step]:
        """Do, or skip, every step up to a checked engine, telling of each when it is done."""
        check_output(self.output, MANIFEST, "an engine")
        source, skipped = self._journal.once(
            "source", self.recipe.source.model_dump(), self._fetch, lambda path: Path(path).exists()
        )
        yield Step("source", source, skipped)
        origin = {"source": source, "files": stamp(Path(source)), "code": code_digest()}
        folder, skipped = self._journal.once(
            "import", origin, lambda: self._import(source), lambda path: (Path(path) / "config.json").exists()
        )
        yield Step("import", folder, skipped)
        imported, made_from = folder, origin
        if (quantize := self.recipe.quantize) is not None:
            made_from = {**origin, "quantize": quantize.model_dump(), "code": code_digest()}
            folder, skipped = self._journal.once(
                "quantize", made_from, lambda: self._quantize(imported, quantize), self._is_quantized
            )
            yield Step("quantize", folder, skipped)
        inputs = {
            "checkpoint": made_from,
            "config": self.recipe.build.model_dump(),
            "machine": target_of(self.recipe.build.target).machine(),
            "code": code_digest(),
        }
        _, skipped = self._journal.once("build", inputs, lambda: self._build(folder), self._is_built)
        yield Step("build", str(self.output), skipped)
        if (check := self.report.get("check")) is not None:
            detail = f"top-1 agreement {check['top1']:.0%}, KL divergence {check['kl']:.2g} nats"
            yield Step("check", detail, skipped)
        if (quality := self.recipe.quality) is not None:
            asked = quality.model_dump(exclude={"perplexity_ratio", "kl", "top1"})
            inputs = {"engine": self._engine_digest(), "checkpoint": origin, "config": asked}
            found, skipped = self._journal.once("quality", inputs, lambda: self._evaluate(imported, quality))
            yield Step("quality", describe(found), skipped)
            require_quality(self.recipe.name, quality, found)

    @property
    def report(self) -> dict[str, Any]:
        """The build's report."""
        return read_report(self.output)

    def demo(self, llm: LLM) -> Iterator[CompletionOutput]:
        """The engine's answer to the recipe's prompt, as it comes."""
        demo = self.recipe.demo
        params = llm.default_sampling_params.replace(**demo.sampling)
        if demo.chat:
            return llm.stream_chat([{"role": "user", "content": demo.prompt}], params)
        return llm.stream(demo.prompt, params)

    def _fetch(self) -> str:
        return str(resolve(_origin(self.recipe.source), self._progress).resolve())

    def _import(self, source: str) -> str:
        return str(open_checkpoint(source, self._progress).path.resolve())

    def _quantize(self, folder: str, config: QuantizeConfig) -> str:
        from ..builder.quantize.quantize import quantize

        output = self.output.parent / f"{self.output.name}.checkpoint"
        quantize(folder, output, config, progress=self._progress)
        return str(output)

    def _is_quantized(self, folder: str) -> bool:
        return (Path(folder) / "config.json").exists()

    def _evaluate(self, reference: str, quality: Quality) -> dict[str, float]:
        found = evaluate(
            self.output,
            reference,
            text=quality.text,
            window=quality.window,
            stride=quality.stride,
            max_tokens=quality.tokens,
            progress=self._progress,
        )
        return figures(found)

    def _build(self, folder: str) -> str:
        name = model_name(self.recipe.source) or self.recipe.name
        build(folder, self.output, self.recipe.build, progress=self._progress, name=name)
        return self._engine_digest()

    def _is_built(self, recorded: str) -> bool:
        return (self.output / MANIFEST).exists() and self._engine_digest() == recorded

    def _engine_digest(self) -> str:
        return hashlib.sha256((self.output / MANIFEST).read_bytes()).hexdigest()


def model_name(source: Source) -> str | None:
    """What people call the model: the cache's folders carry digests."""
    if source.parts is not None:
        return None
    named = source.hub or source.file or source.path or ""
    return Path(named.partition("@")[0] if source.hub else named).name.removesuffix(".gguf")


def _origin(source: Source) -> str | PypiSource:
    if source.pypi is not None:
        parts = [(source.pypi, source.file or "")]
    elif source.parts is not None:
        parts = [(part.pypi, part.file) for part in source.parts]
    else:
        return source.path or source.hub or ""
    return PypiSource(tuple(_file(*part) for part in parts), source.sha256 or "")


def _file(pinned: str, member: str) -> PypiFile:
    package, _, version = pinned.partition("==")
    return PypiFile(package, version, member)
