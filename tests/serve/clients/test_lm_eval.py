"""lm-eval's local-completions, unchanged: log-likelihoods and scores are the engine's own."""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from http_api import Api, Server

pytestmark = pytest.mark.skipif(
    find_spec("lm_eval") is None, reason="lm-eval is not installed: the extra `clients` brings it"
)

PAIRS = [("The capital of France is", " Paris"), ("The capital of France is", " Oslo"), ("2 + 2 =", " 4"), ("a", "b")]


def _options(server: Server, checkpoint: Path) -> dict[str, Any]:
    url = f"{server.url}/v1/completions"
    return {"base_url": url, "model": "tiny-llama", "tokenizer": str(checkpoint), "tokenized_requests": True}


def _model(server: Server, checkpoint: Path, **more: Any) -> Any:
    made = import_module("lm_eval.models.openai_completions").LocalCompletionsAPI
    return made(**_options(server, checkpoint), **more)


def _instance(kind: str, arguments: tuple[Any, ...], number: int = 0) -> Any:
    return import_module("lm_eval.api.instance").Instance(kind, {}, arguments, number)


def _likelihood(api: Api, context: str, continuation: str) -> tuple[float, bool]:
    """The sum of the continuation's log-probabilities, and whether each of its tokens is the likeliest."""
    tokens = api.llm.tokenizer.encode(context + continuation)
    params = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    found = (api.engine_answer(tokens, **params).prompt_logprobs or [])[-len(continuation) :]
    entries = [(entry or {})[token] for entry, token in zip(found, tokens[-len(continuation) :], strict=True)]
    return sum(entry.logprob for entry in entries), all(entry.rank == 1 for entry in entries)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_log_likelihoods(api: Api, server: Server, checkpoint: Path, batch_size: int) -> None:
    model = _model(server, checkpoint, batch_size=batch_size)
    requests = [_instance("loglikelihood", pair, number) for number, pair in enumerate(PAIRS)]
    expected = [_likelihood(api, *pair) for pair in PAIRS]
    found = model.loglikelihood(requests, disable_tqdm=True)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in expected], abs=1e-6)


def test_generated_text(api: Api, server: Server, checkpoint: Path) -> None:
    model = _model(server, checkpoint)
    asked = ("abc", {"until": ["\n"], "max_gen_toks": 12, "temperature": 0})
    (found,) = model.generate_until([_instance("generate_until", asked)], disable_tqdm=True)
    assert found == api.engine_answer("abc", max_tokens=12, temperature=0).outputs[0].text


def test_a_task(api: Api, server: Server, checkpoint: Path, tmp_path: Path) -> None:
    rows = [
        {"q": f"{word} {number}", "choices": [" cat", " dog", " sun"]} for word in ("a", "of") for number in (1, 2, 3)
    ]
    likeliest = [max(range(3), key=lambda at: _likelihood(api, row["q"], row["choices"][at])[0]) for row in rows]
    for number, (row, best) in enumerate(zip(rows, likeliest, strict=True)):
        row["label"] = best if number % 3 else (best + 1) % 3  # the model is right in four of six
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "tiny",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}, "cache_dir": str(tmp_path)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    evaluate = import_module("lm_eval").simple_evaluate
    results = evaluate("local-completions", _options(server, checkpoint), [task], bootstrap_iters=0)
    assert results["results"]["tiny"]["acc,none"] == pytest.approx(4 / 6)
