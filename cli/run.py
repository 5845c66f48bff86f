"""`enginesmith run`: prompts in, text out."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import RequestError
from ..json_files import read_object
from ..runtime.runtime_config import RuntimeConfig
from ..runtime.sampling_params import SamplingParams
from ..runtime.structured_output.params import StructuredOutputsParams
from .click_options import dataclass_fields, given, runtime_config, with_options
from .progress import terminal_progress
from .show import counted
from .stream import Timing, remark, stream
from .terminal import say, write_json, write_model_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..runtime.outputs import CompletionOutput, Logprob, RequestOutput

_ANSWER_TOKENS = 512
_CHUNK, _LONGEST_INPUT = 1 << 16, 1 << 26


@click.command("run")
@click.argument("engine", type=click.Path(path_type=Path))
@click.option("-p", "--prompt", "prompts", multiple=True, help="A prompt; repeat it for several, which run together.")
@click.option("--chat", is_flag=True, help="Send each prompt through the model's chat template.")
@click.option("--interactive", is_flag=True, help="Talk with the model, turn by turn.")
@click.option("--system", help="A system message, with --chat or --interactive.")
@click.option("--json-schema", type=click.Path(path_type=Path), help="Hold outputs to the JSON Schema in this file.")
@click.option("--regex", help="Hold outputs to a regular expression.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line and prompt.")
@with_options(dataclass_fields(RuntimeConfig))
@with_options(dataclass_fields(SamplingParams), skip=("cache_salt", "cache_priority", "cache_ttl"))
def command(
    engine: Path,
    prompts: tuple[str, ...],
    chat: bool,
    interactive: bool,
    system: str | None,
    json_schema: Path | None,
    regex: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Generate text with ENGINE. Without -p or --interactive, the prompt is read from standard input.

    An answer in a conversation (--chat, --interactive) may have 512 tokens unless --max-tokens or the checkpoint says
    otherwise.
    """
    if interactive and (prompts or as_json):
        raise click.UsageError("--interactive goes without -p and --json")
    if system is not None and not (chat or interactive):
        raise click.UsageError("--system goes with --chat or --interactive: a plain prompt has no system message")
    sampling = {name: options[name] for name in options if name not in RuntimeConfig.__dataclass_fields__}
    for name in ("logprobs", "prompt_logprobs"):
        if sampling[name] is not None and not as_json:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --json, which shows them")
    if sampling["n"] is not None and interactive:
        raise click.UsageError("--n goes without --interactive: a conversation has one answer")
    form = _form(json_schema, regex)
    if not prompts and not interactive:
        prompts = (_standard_input(),)
    if chat or interactive:
        from ..runtime.template_process import template_process

        template_process.start()  # while the runtime is imported and the engine opened
    from ..runtime.llm import LLM

    with LLM(engine, runtime_config(options)) as llm:
        changes = given(sampling | {"structured_outputs": form})
        if (chat or interactive) and "max_tokens" not in llm.manifest.model.generation_defaults:
            changes.setdefault("max_tokens", min(_ANSWER_TOKENS, llm.manifest.limits.max_seq_len // 2))
        params = llm.default_sampling_params.replace(**changes)
        opening = [{"role": "system", "content": system}] if system else []
        if interactive:
            from .repl import converse

            converse(llm, params, opening)
            return
        chats = [[*opening, {"role": "user", "content": text}] for text in prompts]
        if len(prompts) == 1 and params.n == 1 and not as_json:
            remark(stream(llm.stream_chat(chats[0], params) if chat else llm.stream(prompts[0], params)).summary)
            return
        with terminal_progress().task(f"Generating for {counted(len(prompts), 'prompt')}"):
            outputs = llm.chat(chats, params) if chat else llm.generate(prompts, params)
        for prompt, output in zip(prompts, outputs, strict=True):
            _show(prompt, output, as_json=as_json)


def _form(json_schema: Path | None, regex: str | None) -> StructuredOutputsParams | None:
    if json_schema is not None and regex is not None:
        raise click.UsageError("--json-schema and --regex contradict each other: give one of the two")
    if json_schema is None and regex is None:
        return None
    from ..runtime.structured_output.grammar_process import grammar_process

    grammar_process.start()  # while the runtime is imported and the engine opened
    schema = None if json_schema is None else read_object(json_schema, RequestError)
    return StructuredOutputsParams(json=schema, regex=regex)


def _standard_input() -> str:
    if sys.stdin is None or sys.stdin.isatty():  # None where the shell closed it
        raise click.UsageError("give a prompt with -p, or --interactive, or text on standard input")
    text = io.StringIO()
    try:
        while piece := sys.stdin.read(_CHUNK):  # not all at once: signals are looked at between two reads
            text.write(piece)
            if text.tell() > _LONGEST_INPUT:
                raise RequestError(f"standard input has more than {_LONGEST_INPUT} characters, too many for a prompt")
        return text.getvalue().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"standard input is not text in {error.encoding}: {error.reason} at {error.start}") from None


def _show(prompt: str, result: "RequestOutput", *, as_json: bool) -> None:
    timing = Timing.of(result.metrics)
    for output in result.outputs:
        if as_json:
            write_json(_line(prompt, result, output, timing))
            continue
        say(f"> {prompt}", bold=True)
        write_model_text(f"{output.text}\n")
    if not as_json:
        remark(timing.summary)


def _line(prompt: str, result: "RequestOutput", output: "CompletionOutput", timing: Timing) -> dict[str, Any]:
    line: dict[str, Any] = {
        "prompt": prompt,
        "index": output.index,
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "prompt_tokens": len(result.prompt_token_ids),
        "num_cached_tokens": result.metrics.num_cached_tokens,
        "output_tokens": len(output.token_ids),
        "ttft_s": timing.ttft,
        "tokens_per_s": timing.tokens_per_second,
    }
    for name, entries in (("logprobs", output.logprobs), ("prompt_logprobs", result.prompt_logprobs)):
        if entries is not None:
            line[name] = [None if entry is None else _by_token(entry) for entry in entries]
    return line


def _by_token(entry: "Mapping[int, Logprob]") -> dict[str, dict[str, float]]:
    return {str(token): {"logprob": value.logprob, "rank": value.rank} for token, value in entry.items()}
