"""Candidates timed on the emulated GPU, whose clock says how long a launch took, and the cache of timings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu, stand_in_compiler
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cuda import plan
from enginesmith.builder.targets.cuda.options import CudaOptions
from enginesmith.builder.targets.cuda.plan import CudaPlan
from enginesmith.builder.targets.cuda.timing_cache import TimingCache
from enginesmith.errors import BuildError
from enginesmith.runtime.executors.cuda.device import find_device

RNG = np.random.default_rng(5)
NETWORK = SmallNetwork(
    """
    a = Gather<axis=0>(table, input_ids)  b = enginesmith.Linear(a, weight)
    logits = Gather<axis=0>(b, logits_rows)
    """,
    24,
    {
        "table": RNG.normal(0, 1, (24, 1024)).astype(np.float32),
        "weight": RNG.normal(0, 1, (24, 1024)).astype(np.float32),
    },
    "float[T, 24] b",
)


@pytest.fixture(autouse=True)
def _stand_in(gpu: EmulatedGpu) -> Iterator[None]:
    with stand_in_compiler():
        yield
    assert gpu.held == 0


def planned(cache: Path | None = None, **options: Any) -> CudaPlan:
    """NETWORK for the GPU of this machine, or with `device=None` for another."""
    device = options.pop("device", True)
    target = CudaOptions(sm="90", timing_cache=None if cache is None else str(cache), **options)
    config = BuildConfig(max_num_tokens=512, max_batch_size=16, target=target)
    return plan.plan(NETWORK.network(), config, 90, 64, device=find_device() if device else None)


def stages(job: dict[str, Any]) -> int:
    return job["num_stages"]


def chosen(found: CudaPlan) -> dict[str, str]:
    """Of the one linear layer, what each bucket of rows runs with, and why."""
    (tactic,) = found.tactics()
    return tactic.variants


def test_without_a_gpu_the_table_of_the_compute_capability_is_taken():
    wanted = "64x16 tiles, 4 warps, 4 stages, K in 4 parts with programs of their own (table for sm_90)"
    assert chosen(planned(device=False))["1-16"] == wanted


@pytest.mark.parametrize("wanted", [3, 5])
def test_the_fastest_candidate_is_taken_and_said_to_be(gpu: EmulatedGpu, wanted: int):
    gpu.milliseconds = lambda job: 0.25 if stages(job) == wanted else 1.0
    found = planned()
    title = chosen(found)["1-16"]
    assert f"{wanted} stages" in title
    assert "us, the next" in title
    assert title.endswith("on Emulated GPU)")
    few = [kernel for kernel in found.kernels.values() if kernel.constants.get("BLOCK_ROWS") == 16]
    assert [kernel.num_stages for kernel in few] == [wanted]


def test_timings_are_kept_and_not_made_again(gpu: EmulatedGpu, tmp_path: Path):
    cache = tmp_path / "timings.json"
    gpu.milliseconds = lambda job: 1.0 / stages(job)
    first = chosen(planned(cache))
    data = json.loads(cache.read_text())
    timing = next(one for one in data["timings"] if one["bucket"] == "T 1-16")
    assert timing["gpu"] == "Emulated GPU"
    assert timing["driver"] == "13.4"
    assert timing["shape"].startswith("linear 24x1024 bf16")
    before = gpu.launches
    again = chosen(planned(cache))
    assert gpu.launches == before
    assert [text.partition(" (")[0] for text in again.values()] == [text.partition(" (")[0] for text in first.values()]
    assert "on Emulated GPU before" in again["1-16"]
    assert chosen(planned(cache, device=False)) == again  # built elsewhere for the same GPU
    gpu.reset(driver=13050)
    gpu.milliseconds = stages
    assert "2 stages" in chosen(planned(cache))["257-"]  # another driver: timed again
    assert gpu.launches > before
    assert len(json.loads(cache.read_text())["timings"]) == 2 * len(data["timings"])


def test_a_step_of_each_size_is_timed_with_weights_from_memory(gpu: EmulatedGpu):
    """Launches are timed one by one; the median counts, whatever a few of them take."""
    launches = 0

    def milliseconds(job: dict[str, Any]) -> float:
        nonlocal launches
        launches += 1
        return 50.0 if launches % 5 == 0 else 1.0 / stages(job)

    gpu.milliseconds = milliseconds
    assert "5 stages" in chosen(planned())["1-16"]


def test_only_other_orders_of_sums_may_be_taken_where_batch_invariance_is_given_up(gpu: EmulatedGpu):
    gpu.milliseconds = lambda job: float(job["constants"].get("SPLITS", 0))
    strict, loose = planned(), planned(batch_invariant=False)
    assert "K in 4 parts" in chosen(strict)["1-16"]
    assert "K in" not in chosen(loose)["1-16"]
    for found, splits in ((strict, {4}), (loose, {1})):
        assert {k.constants["SPLITS"] for k in found.kernels.values() if "SPLITS" in k.constants} == splits
    assert (strict.facts().batch_invariant, loose.facts().batch_invariant) == (True, False)


def test_a_device_without_room_to_time_is_named(gpu: EmulatedGpu):
    gpu.reset(memory=1000)
    with pytest.raises(BuildError, match=r"Emulated GPU has no room to time kernels .*--tactics table"):
        planned()


def test_a_candidate_that_a_block_has_no_memory_for_is_left_out(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch):
    from enginesmith.builder.targets.cuda import timing

    kernel = timing._kernel
    sized = lambda folder, spec: kernel(folder, spec).__class__(  # noqa: E731
        **{**vars(kernel(folder, spec)), "shared": 1 << (20 if spec.num_stages > 3 else 10)}
    )
    monkeypatch.setattr(timing, "_kernel", sized)
    gpu.milliseconds = lambda job: 1.0 / stages(job)
    assert "3 stages" in chosen(planned())["1-16"]


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"format": 2, "timings": []}', '{"format": 1, "timings": [{"gpu": 1}]}', "nothing"]
)
def test_a_file_that_is_no_timing_cache_is_named(tmp_path: Path, text: str):
    path = tmp_path / "timings.json"
    path.write_text(text)
    with pytest.raises(BuildError, match=r"timings\.json.*name another file with --timing-cache"):
        TimingCache(path)
    assert path.read_text() == text
