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
            max_model_len=2048,
            max_num_seqs=16,
            max_num_batched_tokens=2048,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
        )
        self.engine = LLMEngine.from_engine_args(arguments)
        self.vocab_size = self.engine.model_config.get_vocab_size()
        self.next_id = 0

    def run(self, requests, at_once):
        times = {self._add(*request): [] for request in requests}  # max_num_seqs of them run
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            now = time.perf_counter()
            for output in outputs:
                got = times[output.request_id]
                got += [now] * (len(output.outputs[0].token_ids) - len(got))
        return list(times.values())

    def _add(self, ids, count):
        self.next_id += 1
        params = vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        self.engine.add_request(str(self.next_id), {"prompt_token_ids": ids}, params)
        return str(self.next_id)
