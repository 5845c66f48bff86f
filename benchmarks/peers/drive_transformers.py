"""Transformers' generate(), in the checkpoint's dtype; the model is a Hugging Face folder. One stream: no W3."""

# pyright: reportAttributeAccessIssue=false
import time

import torch
import transformers

VERSION = f"{transformers.__version__}, torch {torch.__version__}"


class _Clock:
    """A streamer that only notes when it is called: first with the prompt, then with every token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval()
        self.vocab_size = self.model.config.vocab_size

    @torch.inference_mode()
    def run(self, requests, at_once):
        if len(requests) > 1:
            raise NotImplementedError("this driver runs one stream")
        ids, count = requests[0]
        settings = transformers.GenerationConfig(
            max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None
        )
        prompt, clock = torch.tensor([ids]), _Clock()
        self.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings, streamer=clock)
        return [clock.times[1:]]
