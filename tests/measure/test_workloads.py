"""The workloads are what docs/benchmarks.md says, and their figures are what the times say."""

import pytest

from enginesmith.measure.workloads import Measurement, Workload, median_run


def _run(workload: Workload, **changes: object) -> Measurement:
    values = {"wall": 2.0, "ttfts": (0.5,), "intervals": (0.1, 0.3), "prompt_tokens": 100, "output_tokens": 3}
    return Measurement(workload=workload, **(values | changes))  # type: ignore[arg-type]


def test_lengths() -> None:
    assert Workload.W1.lengths() == [(128, 128)]
    assert Workload.W2.lengths() == [(1024, 1)]
    assert Workload.W4.lengths() == [(4096, 64)]
    assert Workload.W5.lengths() == [(64, 64)] * 64
    assert [workload.at_once for workload in Workload] == [16, 16, 16, 16, 64]
    mixed = Workload.W3.lengths()
    assert len(mixed) == 32
    assert (sum(p for p, _ in mixed), sum(o for _, o in mixed)) == (4531, 1926)  # what all engines were given
    assert all(32 <= p <= 256 and 16 <= o <= 128 for p, o in mixed)


def test_rates() -> None:
    assert _run(Workload.W1).tokens_per_second == pytest.approx(2 / 0.4)
    assert _run(Workload.W2).tokens_per_second == pytest.approx(100 / 0.5)
    assert _run(Workload.W3).tokens_per_second == pytest.approx(3 / 2.0)
    assert _run(Workload.W4).tokens_per_second == pytest.approx(2 / 0.4)
    assert _run(Workload.W5).tokens_per_second == pytest.approx(3 / 2.0)


def test_median_run() -> None:
    runs = [_run(Workload.W3, wall=wall) for wall in (5.0, 1.0, 3.0)]
    assert median_run(runs).wall == 3.0
    assert median_run(runs[:2]).wall == 5.0  # the slower of two
