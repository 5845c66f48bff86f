"""Time to first token of a prompt whose first 1,000 tokens were cached, beside one of which nothing was.

python benchmarks/prefix_cache.py ENGINE
"""

import statistics
import sys

import numpy as np

from enginesmith import LLM, SamplingParams

SHARED, OWN, RUNS = 1000, 8, 5

random = np.random.default_rng(0)
colds, warms = [], []
with LLM(sys.argv[1]) as llm:

    def fresh(count: int) -> list[int]:
        return random.integers(0, llm.manifest.model.vocab_size, count).tolist()

    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    llm.generate(fresh(SHARED + OWN), params)
    for _ in range(RUNS):
        shared = fresh(SHARED)
        cold, warm = (llm.generate([*shared, *fresh(OWN)], params)[0].metrics for _ in range(2))
        colds.append(cold.ttft)
        warms.append(warm.ttft)
        assert cold.num_cached_tokens == 0 < warm.num_cached_tokens
first, second = statistics.median(colds), statistics.median(warms)
print(f"first {first * 1e3:.0f} ms, second {second * 1e3:.0f} ms ({second / first:.1%}), median of {RUNS}")
