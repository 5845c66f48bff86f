"""ONNX Runtime GenAI; the model is a folder of its model builder. One stream only: W3 is left out."""

# pyright: reportMissingImports=false
import json
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai as genai

VERSION = genai.__version__


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        config = genai.Config(model)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = genai.Model(config)
        self.vocab_size = json.loads((Path(model) / "genai_config.json").read_text())["model"]["vocab_size"]

    def run(self, requests, at_once):
        if len(requests) > 1:
            raise NotImplementedError("this driver runs one stream")
        ids, count = requests[0]
        params = genai.GeneratorParams(self.model)
        length = len(ids) + count
        params.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=1)
        generator = genai.Generator(self.model, params)
        generator.append_tokens(np.array([ids], dtype=np.int32))
        times = []
        for _ in range(count):
            generator.generate_next_token()
            times.append(time.perf_counter())
        return [times]
