"""OpenVINO GenAI's ContinuousBatchingPipeline; the model is an exported folder, precisions its defaults."""

# pyright: reportMissingImports=false
import json
import time
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai

VERSION = genai.get_version()


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 2, 64, 2048
        scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = False, True
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", options)
        self.vocab_size = json.loads((Path(model) / "config.json").read_text())["vocab_size"]
        self.next_id = 0

    def run(self, requests, at_once):
        waiting, running, times = list(range(len(requests)))[::-1], {}, [[] for _ in requests]
        while waiting or running:
            while waiting and len(running) < at_once:
                index = waiting.pop()
                running[index] = self._add(*requests[index])
            self.pipeline.step()
            now = time.perf_counter()
            for index, handle in list(running.items()):
                while handle.can_read():
                    for output in handle.read().values():
                        times[index] += [now] * len(output.generated_ids)
                if len(times[index]) >= requests[index][1]:
                    del running[index]
        return times

    def _add(self, ids, count):
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = count
        config.ignore_eos, config.do_sample = True, False
        self.next_id += 1
        return self.pipeline.add_request(self.next_id, ov.Tensor(np.array([ids], dtype=np.int64)), config)
