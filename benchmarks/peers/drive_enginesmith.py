"""enginesmith; the model is an engine folder. Batches hold at most as many requests as it was built for."""

from concurrent.futures import ThreadPoolExecutor

import enginesmith
from enginesmith import LLM, SamplingParams

VERSION = enginesmith.__version__


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        self.llm = LLM(model, threads=threads)
        self.vocab_size = self.llm.manifest.model.vocab_size

    def run(self, requests, at_once):
        prompts = [ids for ids, _ in requests]
        params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for _, count in requests]
        if self.llm.manifest.limits.max_batch_size <= at_once or len(requests) <= at_once:
            results = self.llm.generate(prompts, params)
        else:
            with ThreadPoolExecutor(at_once) as pool:
                results = list(pool.map(lambda p, s: self.llm.generate([p], s)[0], prompts, params))
        return [result.metrics.token_times for result in results]
