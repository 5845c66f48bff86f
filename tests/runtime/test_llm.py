"""LLM on the toy engine: results, streaming, stopping, limits, failures."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginesmith.errors import EngineError, RequestError
from enginesmith.runtime.admission import Admission
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def every_block_is_free(llm: LLM) -> bool:
    """Once the loop has done what it was told."""
    scheduler = llm.engine.scheduler
    return llm._loop.call(lambda: not scheduler.unfinished and not scheduler.running and llm.engine.kv.usage == 0)


def test_outputs_follow_the_order_and_form_of_the_prompts(llm: LLM):
    texts = ["the fox", "a dog", "日本"]
    together = llm.generate(texts, GREEDY)
    assert [output.prompt for output in together] == texts
    for text, output in zip(texts, together, strict=True):
        alone = llm.generate(text, GREEDY)[0]
        by_ids = llm.generate(llm.tokenizer.encode(text), GREEDY)[0]
        assert alone.outputs == output.outputs == by_ids.outputs
        assert by_ids.prompt is None
        assert by_ids.prompt_token_ids == output.prompt_token_ids == llm.tokenizer.encode(text)
        assert len(output.outputs[0].token_ids) == 12
        assert output.outputs[0].finish_reason == "length"
    assert llm.generate([], GREEDY) == []
    assert every_block_is_free(llm)


def test_text_is_the_decoding_of_the_tokens(llm: LLM):
    params = SamplingParams(temperature=1, seed=3, max_tokens=60, ignore_eos=True)
    for output in llm.generate(["the fox", "日本語"] * 4, params):
        answer = output.outputs[0]
        assert answer.text == llm.tokenizer.decode(answer.token_ids)


def test_stream_adds_up_to_generate(llm: LLM):
    params = SamplingParams(temperature=1, seed=11, max_tokens=40, logprobs=2)
    whole = llm.generate("the lazy dog", params)[0].outputs[0]
    pieces = list(llm.stream("the lazy dog", params))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [token for piece in pieces for token in piece.token_ids] == whole.token_ids
    assert [entry for piece in pieces for entry in piece.logprobs or ()] == whole.logprobs
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == whole.finish_reason


def test_interleaved_streams_share_the_engine(llm: LLM):
    alone = [llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in ("one", "two")]
    streams = [llm.stream(prompt, GREEDY) for prompt in ("one", "two")]
    collected: list[list[int]] = [[], []]
    for tokens, stream in zip(collected, streams, strict=True):
        tokens += next(stream).token_ids
    for tokens, stream in zip(collected, streams, strict=True):
        tokens += [token for piece in stream for token in piece.token_ids]
    assert collected == alone


def test_closing_a_stream_aborts_it(llm: LLM):
    stream = llm.stream("the fox", SamplingParams(temperature=0, max_tokens=64, ignore_eos=True))
    next(stream)
    assert not every_block_is_free(llm)
    stream.close()  # type: ignore[attr-defined]
    assert every_block_is_free(llm)


def test_a_seed_decides_the_output(llm: LLM):
    def tokens(**options: object) -> list[int]:
        params = SamplingParams(max_tokens=20, ignore_eos=True, **options)  # type: ignore[arg-type]
        return llm.generate("the", params)[0].outputs[0].token_ids

    assert tokens(seed=5) == tokens(seed=5)
    assert tokens(seed=5) != tokens(seed=6)
    assert tokens(seed=-1) == tokens(seed=2**64 - 1)
    assert tokens() != tokens()
    assert tokens(seed=5) != tokens(seed=5, temperature=0.1)


def test_stopping(llm: LLM):
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    free = llm.generate("stop here", params)[0].outputs[0]
    stop_token = free.token_ids[7]
    stopped = llm.generate("stop here", params.replace(stop_token_ids=[stop_token]))[0].outputs[0]
    first = free.token_ids.index(stop_token)
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop_token)
    assert stopped.text == llm.tokenizer.decode(free.token_ids[:first])
    shown = llm.generate("stop here", params.replace(stop_token_ids=[stop_token], include_stop_str_in_output=True))
    assert shown[0].outputs[0].text == llm.tokenizer.decode(free.token_ids[: first + 1])

    string = free.text[9:12]
    by_text = llm.generate("stop here", params.replace(stop=string))[0].outputs[0]
    assert by_text.text == free.text[: free.text.index(string)]
    assert (by_text.finish_reason, by_text.stop_reason) == ("stop", string)


def test_end_of_sequence_and_min_tokens(llm: LLM):
    eos = set(llm.manifest.model.eos_token_ids)
    bias = dict.fromkeys(eos, 100.0)
    ended = llm.generate("x", SamplingParams(logit_bias=bias))[0].outputs[0]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", None)
    assert len(ended.token_ids) == 1
    assert ended.token_ids[0] in eos
    assert ended.text == ""
    later = llm.generate("x", SamplingParams(logit_bias=bias, min_tokens=5))[0].outputs[0]
    assert len(later.token_ids) == 6
    assert not eos & set(later.token_ids[:5])
    ignored = llm.generate("x", SamplingParams(logit_bias=bias, ignore_eos=True, max_tokens=4))[0].outputs[0]
    assert set(ignored.token_ids) <= eos
    assert ignored.finish_reason == "length"


def test_logprobs_name_the_sampled_and_the_likeliest(llm: LLM):
    params = SamplingParams(temperature=1.5, seed=1, max_tokens=10, logprobs=3, ignore_eos=True)
    output = llm.generate("the fox", params)[0]
    answer = output.outputs[0]
    assert answer.logprobs is not None
    logits = llm.compute_logits(output.prompt_token_ids + answer.token_ids)
    import numpy as np

    logprobs = logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))
    for index, (token, entries) in enumerate(zip(answer.token_ids, answer.logprobs, strict=True)):
        row = logprobs[len(output.prompt_token_ids) - 1 + index]
        best = np.argsort(-row, kind="stable")[:3]
        assert set(entries) == {token, *best.tolist()}
        for entry_token, entry in entries.items():
            assert entry.logprob == pytest.approx(row[entry_token], abs=1e-4)
            assert entry.rank == 1 + int((row > row[entry_token]).sum())
    total = answer.cumulative_logprob
    assert total == pytest.approx(sum(entries[t].logprob for t, entries in zip(answer.token_ids, answer.logprobs)))  # noqa: B905


def test_compute_logits_does_not_depend_on_the_chunks(llm: LLM):
    tokens = list(range(100, 141))
    whole = llm.compute_logits(tokens)
    assert whole.shape == (41, 300)
    assert (llm.compute_logits(tokens, chunks=[1, 7, 16, 13, 4]) == whole).all()
    assert every_block_is_free(llm)


@pytest.mark.parametrize(
    ("tokens", "chunks", "message"),
    [
        ([], None, r"1 to 96 tokens \(the engine's max_seq_len\), got 0"),
        ([1] * 97, None, "got 97"),
        ([1, 300], None, r"\[0, 300\), got 300 at position 1"),
        (["a"], None, "got 'a' at position 0"),
        ("text", None, "got 't' at position 0"),
        (None, None, "got NoneType"),
        ([1] * 9, [8], "chunks add up to 8 tokens, the prompt has 9"),
        ([1] * 9, [10, -1], r"integers in \[1, 16\] \(the engine's max_num_tokens\), got -1"),
        ([1] * 17, [17], "got 17"),
        ([1], [1, 0], "got 0"),
        ([1], [1.0], r"got 1\.0"),
        ([1], 1, "chunks must be a list, got int"),
        ([1], [], "chunks add up to 0 tokens"),
    ],
)
def test_compute_logits_of_what_cannot_be(llm: LLM, tokens: list[int], chunks: list[int] | None, message: str):
    with pytest.raises(RequestError, match=message):
        llm.compute_logits(tokens, chunks)
    assert every_block_is_free(llm)


def test_chat_uses_the_template(llm: LLM):
    messages = [{"role": "user", "content": "the fox?"}]
    prompt = llm.render_chat(messages)
    assert prompt == "<|start|>user: the fox?<|end|>\n<|start|>assistant: "
    answered = llm.chat(messages, GREEDY)[0]
    assert answered.prompt == prompt
    assert answered.prompt_token_ids == llm.tokenizer.encode(prompt, add_special_tokens=False)
    assert [output.outputs for output in llm.chat([messages, messages], GREEDY)] == [answered.outputs] * 2
    assert "".join(piece.text for piece in llm.stream_chat(messages, GREEDY)) == answered.outputs[0].text


def test_advised_max_tokens_end_where_the_room_does(llm: LLM):
    model = replace(llm.manifest.model, generation_defaults={"max_tokens": 4096})
    admission = Admission(replace(llm.manifest, model=model), llm.tokenizer, llm.engine.kv)
    limit = llm.manifest.limits.max_seq_len
    assert admission.admit([1, 2, 3], SamplingParams(max_tokens=4096)).requests[0].max_total_tokens == limit
    with pytest.raises(RequestError, match="together exceed"):
        admission.admit([1, 2, 3], SamplingParams(max_tokens=4097))


def test_special_tokens_are_added_where_asked_and_never_twice(llm: LLM):
    from tokenizers import processors

    start = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", 1)])
    llm.tokenizer._rust.post_processor = start  # type: ignore[assignment]
    messages = [{"role": "user", "content": "the fox?"}]
    prompt = llm.render_chat(messages)  # begins with <|start|>
    chat = llm.chat(messages, GREEDY)[0].prompt_token_ids
    assert chat[:1] == [1] != chat[1:2]
    for output in (*llm.generate([prompt] * 2, GREEDY), *llm.chat(messages, GREEDY, add_special_tokens=True)):
        assert output.prompt_token_ids == chat
    with_start, without = (
        llm.generate("the fox", GREEDY, add_special_tokens=added)[0].prompt_token_ids for added in (True, False)
    )
    assert with_start == [1, *without]
    assert [piece.text for piece in llm.stream_chat(messages, GREEDY, add_special_tokens=True)] == [
        piece.text for piece in llm.stream(prompt, GREEDY)
    ]


def test_default_sampling_params_come_from_the_checkpoint(llm: LLM):
    assert llm.default_sampling_params == SamplingParams(temperature=0.5, top_k=40)
    assert len(llm.generate("x")[0].outputs[0].token_ids) <= 16


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], SamplingParams(), None),
        ("", SamplingParams(), "no tokens"),
        ([1, 2, 300], SamplingParams(), r"\[0, 300\), got 300 at position 2"),
        ([1, -1], SamplingParams(), r"got -1 at position 1"),
        ([5] * 96, SamplingParams(), "96 tokens, but this engine's max_seq_len is 96.*at most 95"),
        ([5] * 90, SamplingParams(max_tokens=7), r"90 tokens\) and max_tokens \(7\).*96.*at most 6.*--max-seq-len 97"),
        ([5], SamplingParams(stop_token_ids=[300]), "stop_token_ids.*got 300"),
        ([5], SamplingParams(logit_bias={1000: 1}), "logit_bias.*got 1000"),
        ([5] * 90, SamplingParams(max_tokens=None, min_tokens=7), "min_tokens must be at most 6"),
    ],
)
def test_requests_past_a_limit_are_refused(llm: LLM, prompt: list[int], params: SamplingParams, message: str | None):
    if message is None:
        assert llm.generate(prompt, params) == []
        return
    with pytest.raises(RequestError, match=message):
        llm.generate([[5], prompt], params)
    assert every_block_is_free(llm)


def test_max_tokens_none_fills_the_sequence(llm: LLM):
    output = llm.generate([[5] * 90], SamplingParams(max_tokens=None, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 6


def test_a_failing_step_fails_only_the_requests_that_cannot_be_served(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    expected = llm.generate("good", GREEDY)[0].outputs
    good = llm.stream("good", GREEDY)
    first = next(good)
    step = llm.engine.executor.step

    def faulty(slices: list, rows: list) -> None:
        time.sleep(0.002)
        if any(item.token_ids[0] == 99 for item in slices):
            raise EngineError("boom")
        step(slices, rows)

    monkeypatch.setattr(llm.engine.executor, "step", faulty)
    low = SamplingParams(max_tokens=4)
    doomed = llm._admission.admit([99, 1, 2], low)
    llm._loop.submit([doomed])
    rest = list(good)  # it shares the failing step, if it has not ended yet
    assert [*first.token_ids, *(token for piece in rest for token in piece.token_ids)] == expected[0].token_ids
    until = time.monotonic() + 30
    while not doomed.finished and time.monotonic() < until:  # the other may have ended before it came
        time.sleep(0.001)
    with pytest.raises(EngineError, match="boom"):
        doomed.take()
    assert every_block_is_free(llm)
    assert llm.generate("good", GREEDY)[0].outputs == expected
    with pytest.raises(EngineError, match="boom"):
        llm.generate([[99]], low)
    assert every_block_is_free(llm)


def test_threads_share_one_engine(llm: LLM):
    prompts = [f"prompt {index}" for index in range(8)]
    alone = [llm.generate(prompt, GREEDY)[0].outputs for prompt in prompts]
    results: dict[int, object] = {}

    def work(index: int) -> None:
        results[index] = llm.generate(prompts[index], GREEDY)[0].outputs

    workers = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [results[index] for index in range(8)] == alone
    assert every_block_is_free(llm)


def test_metrics(llm: LLM):
    metrics = llm.generate("the fox", GREEDY)[0].metrics
    assert metrics.ttft is not None
    assert metrics.ttft > 0
    assert len(metrics.inter_token_latencies) == 11
    assert metrics.latency == pytest.approx(metrics.ttft + sum(metrics.inter_token_latencies))


def test_an_engine_rebuilt_in_place_is_the_new_one(make_toy_engine: Callable[..., Path], tmp_path: Path):
    answers = []
    for salt in (1, 2):
        with LLM(make_toy_engine(tmp_path / "e.engine", salt), threads=1) as llm:
            answers.append(llm.generate("same", GREEDY)[0].outputs[0].token_ids)
    assert answers[0] != answers[1]


def test_bad_options(toy_engine: Path):
    with pytest.raises(EngineError, match="capacity_policy must be one of guaranteed_no_evict, max_utilization"):
        LLM(toy_engine, capacity_policy="fast")
    with pytest.raises(EngineError, match=r"threads must be an integer in \[1, 1024\], got 0"):
        LLM(toy_engine, threads=0)
    with pytest.raises(EngineError, match=r"max_seq_len 96 needs .* kv_cache_memory is 100 B"):
        LLM(toy_engine, kv_cache_memory=100)
    with LLM(toy_engine, threads=1) as llm, pytest.raises(RequestError, match="one for each of the 2 prompts, got 1"):
        llm.generate(["a", "b"], [GREEDY])


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (None, GREEDY, "prompts must be a list, got NoneType"),
        (5, GREEDY, "prompts must be a list, got int"),
        (b"abc", GREEDY, "prompts must be a list, got bytes"),
        (np.array([1, 2]), GREEDY, "prompts must be a list, got ndarray"),
        ([None], GREEDY, "prompt must be text or a list of token ids, got NoneType"),
        (["a", 5], GREEDY, "prompt must be text or a list of token ids, got int"),
        ([b"a"], GREEDY, "prompt must be text or a list of token ids, got bytes"),
        ([[True]], GREEDY, "got True at position 0"),
        (["a\ud800b"], GREEDY, "a lone surrogate at character 1"),
        (["a"], "greedy", "sampling_params must be a list, got str"),
        (["a"], {"max_tokens": 5}, "sampling_params must be a list, got dict"),
        (["a"], [5], "sampling_params must hold SamplingParams values, got int"),
    ],
)
def test_arguments_of_another_type(llm: LLM, prompts: object, params: object, message: str):
    with pytest.raises(RequestError, match=message):
        llm.generate(prompts, params)  # type: ignore[arg-type]
    assert every_block_is_free(llm)


@pytest.mark.parametrize("messages", [None, 5, "hi"])
def test_conversations_of_another_type(llm: LLM, messages: object):
    with pytest.raises(RequestError, match="messages must be a list"):
        llm.chat(messages, GREEDY)  # type: ignore[arg-type]


def test_token_ids_of_numpy(llm: LLM):
    ids = [5, 6, 7]
    assert llm.generate(list(np.array(ids)), GREEDY)[0].outputs == llm.generate(ids, GREEDY)[0].outputs


def test_a_tokenizer_whose_ids_the_model_lacks(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    size = llm.manifest.model.vocab_size
    monkeypatch.setattr(llm.tokenizer, "encode", lambda text, **options: [1, size])
    with pytest.raises(RequestError, match=f"got {size} at position 1"):
        llm.generate("a", GREEDY)


def test_a_request_that_bans_every_token_is_refused(llm: LLM):
    everything = range(llm.manifest.model.vocab_size)
    banned = SamplingParams(logit_bias=dict.fromkeys(everything, -math.inf))
    with pytest.raises(RequestError, match="ban all"):
        llm.generate(["a"], banned)
    with pytest.raises(RequestError, match="ban all"):
        llm.generate(["a"], SamplingParams(stop_token_ids=everything, min_tokens=1))


def test_top_k_of_any_size_means_all(llm: LLM):
    outputs = [
        llm.generate("a", SamplingParams(temperature=1, seed=1, top_k=k, ignore_eos=True))[0].outputs
        for k in (0, 2**31, 2**80)
    ]
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("memory", ["1GB", 1.5, math.nan])
def test_cache_memory_of_another_type(toy_engine: Path, memory: object):
    with pytest.raises(EngineError, match="kv_cache_memory must be a whole number of bytes"):
        LLM(toy_engine, kv_cache_memory=memory)  # type: ignore[arg-type]


def test_a_text_that_is_too_long_is_not_tokenized(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    limit, longest = llm.manifest.limits.max_seq_len, llm.tokenizer.longest_token
    with pytest.raises(RequestError, match=r"prompt has \d+ tokens, but this engine's max_seq_len"):
        llm.generate(["a" * (limit * longest)])
    monkeypatch.setattr(llm.tokenizer, "encode", None)
    with pytest.raises(RequestError, match=f"characters, more than the {limit * longest} that {limit} tokens"):
        llm.generate(["a" * (limit * max(32, longest) + 1)])
