"""What is tried, what arrives, and what comes of the times; the runs themselves are tested through the command."""

import pytest

from enginesmith.measure.tune import Load, Run, Setting, best, draw_requests, median, settings_of, summary
from enginesmith.runtime.manifest import Limits
from enginesmith.runtime.outputs import Metrics

LOAD = Load(requests=200, prompt_tokens=20, output_tokens=5)


def _run(throughput: float, between_p99: float, ttft_p99: float = 1.0) -> Run:
    return Run(
        throughput, ttft_p50=ttft_p99 / 2, ttft_p99=ttft_p99, between_p50=between_p99 / 2, between_p99=between_p99
    )


def test_settings() -> None:
    tried = settings_of(Limits(max_batch_size=16, max_num_tokens=128, max_seq_len=64))
    assert tried[0] == (16, 128)
    assert set(tried) == {(batch, step) for batch in (16, 8, 4, 2) for step in (128, 64, 32, 16)}
    assert settings_of(Limits(max_batch_size=1, max_num_tokens=8, max_seq_len=64)) == [(1, 8)]
    narrow = settings_of(Limits(max_batch_size=64, max_num_tokens=64, max_seq_len=64))
    assert set(narrow) == {(b, s) for b in (64, 32, 16, 8) for s in (64, 32, 16) if s >= b}


def test_requests_are_the_same_at_any_rate() -> None:
    slow, fast, at_once = (draw_requests(LOAD, rate, 97) for rate in (2.0, 4.0, float("inf")))
    for one, other in ((slow, fast), (slow, at_once)):
        assert [request[1:] for request in one] == [request[1:] for request in other]
    assert [request.at for request in slow] == pytest.approx([2 * request.at for request in fast])
    assert {request.at for request in at_once} == {0.0}
    assert slow[0].at == 0
    assert slow[-1].at == pytest.approx(100, rel=0.25)  # 200 requests, 2 a second
    assert {len(request.prompt) for request in slow} == set(range(10, 31))
    assert {request.output_tokens for request in slow} == {2, 3, 4, 5, 6, 7}
    assert all(0 <= token < 97 for request in slow for token in request.prompt)


def test_the_figures_of_a_run() -> None:
    run = summary([Metrics(10.0, token_times=[11.0, 12.0, 14.0]), Metrics(12.0, token_times=[12.5, 20.0])])
    assert run.throughput == pytest.approx(5 / 10)
    assert (run.ttft_p50, run.between_p50) == (pytest.approx(0.75), pytest.approx(2.0))  # of 1, .5 and of 1, 2, 7.5
    assert run.ttft_p99 == pytest.approx(0.995)
    assert run.between_p99 == pytest.approx(2 + 0.98 * 5.5)
    assert summary([Metrics(0.0, token_times=[4.0])]).between_p99 == 0


def test_medians_are_of_each_figure() -> None:
    assert median([_run(3, 10), _run(1, 30), _run(2, 20)]) == _run(2, 20)
    assert median([_run(1, 30), _run(9, 10), _run(2, 20)]).throughput == 2


def test_the_best_is_the_fastest_under_the_bounds() -> None:
    medians = {Setting(1, 64): _run(10, 0.01, 9), Setting(2, 64): _run(20, 0.02, 5), Setting(4, 64): _run(30, 0.04, 1)}
    assert best(medians, 0.03, None) == Setting(2, 64)
    assert best(medians, 0.04, None) == Setting(4, 64)
    assert best(medians, 0.04, 0.5) is None
    assert best(medians, 0.009, None) is None
    assert best(medians, 0.03, 5) == Setting(2, 64)
