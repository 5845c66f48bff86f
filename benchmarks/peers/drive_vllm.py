"""vLLM's engine in this process; the model is a Hugging Face folder, in bfloat16 or as its config quantizes it."""

# pyright: reportMissingImports=false
import os
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # step() here, not in a process of its own
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

VERSION = vllm.__version__


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        arguments = EngineArgs(
            model=model,
            dtype="bfloat16",
            max_model_len=4352,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
        )
        self.engine = LLMEngine.from_engine_args(arguments)
        self.vocab_size = self.engine.model_config.get_vocab_size()
        self.next_id = 0

    def run(self, requests, at_once):
        waiting, times = list(range(len(requests)))[::-1], [[] for _ in requests]
        running = {}  # id of vLLM's request -> index of ours
        while waiting or running:
            while waiting and len(running) < at_once:
                index = waiting.pop()
                running[self._add(*requests[index])] = index
            outputs = self.engine.step()
            now = time.perf_counter()
            for output in outputs:
                got = times[running[output.request_id]]
                got += [now] * (len(output.outputs[0].token_ids) - len(got))
                if output.finished:
                    del running[output.request_id]
        return times

    def _add(self, ids, count):
        self.next_id += 1
        params = vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        self.engine.add_request(str(self.next_id), {"prompt_token_ids": ids}, params)
        return str(self.next_id)
