"""enginesmith: compile Hugging Face language models into engines, then run them."""

TYPE_CHECKING = False  # importing it from typing would double the time before a Ctrl-C is handled

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .builder.build import build
    from .builder.build_options import BuildConfig
    from .builder.quantize.quantize import quantize
    from .builder.quantize.quantize_options import QuantizeConfig
    from .recipes.schema import Recipe
    from .runtime.async_llm import AsyncLLM
    from .runtime.llm import LLM
    from .runtime.sampling_params import SamplingParams
    from .runtime.structured_output.params import StructuredOutputsParams

_HOME = {
    "build": ".builder.build",
    "BuildConfig": ".builder.build_options",
    "quantize": ".builder.quantize.quantize",
    "QuantizeConfig": ".builder.quantize.quantize_options",
    "AsyncLLM": ".runtime.async_llm",
    "LLM": ".runtime.llm",
    "SamplingParams": ".runtime.sampling_params",
    "StructuredOutputsParams": ".runtime.structured_output.params",
    "Recipe": ".recipes.schema",
}

__all__ = [
    "LLM", "AsyncLLM", "BuildConfig", "QuantizeConfig", "Recipe", "SamplingParams", "StructuredOutputsParams",
    "__version__", "build", "quantize",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing enginesmith itself costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'enginesmith' has no attribute {name!r}")
    from importlib import import_module

    from .extras import install_command

    try:
        return getattr(import_module(_HOME[name], __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == __name__:
            raise
        message = f"enginesmith.{name} needs {error.name}, a library of the extra 'build': {install_command('build')}"
        raise ModuleNotFoundError(message, name=error.name) from error
