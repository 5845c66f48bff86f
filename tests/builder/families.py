"""Every causal language model of Transformers, tiny and random: it agrees with Transformers, or it is refused.

python tests/builder/families.py [MODEL_TYPE ...] [--how HOW]: a line for each, of all if none is named; results go into
families.json beside this file, and docs/models.md is written of it. HOW is

engine     (default) the logits of prompts, whole, in chunks, token by token and in company, and 32 greedy tokens,
           also of requests that were preempted, of a compiled engine, against Transformers in float32
network    the logits of packed prompts alone, by NumPy, of the fused network that an engine would be compiled of; a
           third of the time. If none is named, of entries without a result
quantized  of those that agree: an engine with int8 weights and an int8 KV cache, held to a build's own check
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
from model_checks import NoTinyModelError, check_engine, check_network, check_quantized
from models_page import PAGE, RESULTS, Results, page, read
from quick_compiler import quick_options
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

import enginesmith.builder.trace.trace_model  # noqa: F401  (before processes are forked)
from enginesmith.errors import EnginesmithError

SECONDS = 900  # after which an entry counts as hung


def _run(function: Any, model_type: str, pipe: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = function(model_type, Path(folder))
        except NoTinyModelError as error:
            result = {"outcome": "no tiny model", "reason": str(error)}
        except EnginesmithError as error:
            result = {"outcome": "refused", "reason": str(error).replace(folder, "")}
        except Exception as error:
            result = {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
    pipe.send(result)


def in_a_process(function: Any, model_type: str) -> dict[str, Any]:
    """A process of its own, whose crash, memory and time concern no other entry."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(function, model_type, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(SECONDS):
            process.kill()
            return {"outcome": "failed", "reason": f"not done after {SECONDS} s"}
        return receiver.recv()
    except EOFError:
        return {"outcome": "failed", "reason": "the process died"}
    finally:
        process.join()


def entries() -> list[str]:
    return sorted({kind.model_type for kind in MODEL_FOR_CAUSAL_LM_MAPPING})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model_types", nargs="*")
    parser.add_argument("--how", choices=list(HOW), default="engine")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    os.environ["ENGINESMITH_CXXFLAGS"] = quick_options()
    for model_type in arguments.model_types or entries():
        known = read().get(model_type, {})
        if not arguments.model_types and not _is_wanted(arguments.how, known):
            continue
        result = in_a_process(HOW[arguments.how], model_type)
        save(read() | {model_type: {**known, **result} if arguments.how == "quantized" else result})
        print(f"{model_type:28}", {key: value for key, value in result.items() if key != "class"}, flush=True)


def _is_wanted(how: str, known: dict[str, Any]) -> bool:
    """Of entries that nobody named: networks only of those without a result, so that a run goes on where one ended."""
    return {"engine": True, "network": not known, "quantized": known.get("outcome") == "agrees"}[how]


HOW = {"engine": check_engine, "network": check_network, "quantized": check_quantized}


def save(results: Results) -> None:
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
