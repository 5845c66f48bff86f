"""llama.cpp through llama-cpp-python; the model is a GGUF file.

Its low-level interface, in the loop that llama-server runs: a decode a step with the next token of every running
sequence and, while there is room, whole waiting prompts. LLAMACPP_PLAIN_BUFFERS=1 in the environment keeps it from
repacking weights, without which version 0.3.36 crashes on AMX.
"""

# pyright: reportMissingImports=false
import os
import time

import llama_cpp as lib
import numpy as np

VERSION = lib.__version__
BATCH, LONGEST_PROMPT = 2048, 4096  # tokens of a decode: one prompt may exceed what several share
GRANULE = 256  # of a sequence's context


class Engine:
    def __init__(self, model: str, threads: int) -> None:
        lib.llama_backend_init()
        lib.llama_log_set(_QUIET, None)
        settings = lib.llama_model_default_params()
        settings.use_extra_bufts = "LLAMACPP_PLAIN_BUFFERS" not in os.environ
        self.model = lib.llama_model_load_from_file(model.encode(), settings)
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.threads, self.size, self.context = threads, (0, 0), None
        self.batch = lib.llama_batch_init(LONGEST_PROMPT, 0, 1)
        self._open(1, 1024)

    def _open(self, slots: int, tokens: int) -> None:
        """A context for so many sequences of so many tokens; kept until another size is asked for."""
        if (slots, tokens) == self.size:
            return
        if self.context is not None:
            lib.llama_free(self.context)
        params = lib.llama_context_default_params()
        params.n_ctx = tokens * slots
        params.n_batch, params.n_ubatch, params.n_seq_max = LONGEST_PROMPT, 512, slots
        params.n_threads = params.n_threads_batch = self.threads
        if hasattr(params, "kv_unified"):
            params.kv_unified = True
        self.context, self.size = lib.llama_init_from_model(self.model, params), (slots, tokens)
        self.memory = lib.llama_get_memory(self.context)

    def run(self, requests, at_once):
        slots = min(at_once, len(requests))
        longest = max(len(ids) + count for ids, count in requests)
        self._open(slots, -(-longest // GRANULE) * GRANULE)
        lib.llama_memory_clear(self.memory, True)
        waiting, times = list(range(len(requests)))[::-1], [[] for _ in requests]
        free, running = list(range(slots)), {}  # slot -> [request, position, next token]
        while waiting or running:
            rows = []
            self.batch.n_tokens = 0
            for slot, state in running.items():
                rows.append((slot, self._put(state[2], state[1], slot, wanted=True)))
                state[1] += 1
            while waiting and free and self._fits(len(requests[waiting[-1]][0])):
                index, slot = waiting.pop(), free.pop()
                ids = requests[index][0]
                row = [self._put(token, i, slot, wanted=i == len(ids) - 1) for i, token in enumerate(ids)][-1]
                running[slot] = [index, len(ids), 0]
                rows.append((slot, row))
            if lib.llama_decode(self.context, self.batch) != 0:
                raise RuntimeError("llama_decode failed")
            for slot, row in rows:
                logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, row), shape=(self.vocab_size,))
                state = running[slot]
                state[2] = int(logits.argmax())
                times[state[0]].append(time.perf_counter())
                if len(times[state[0]]) == requests[state[0]][1]:
                    lib.llama_memory_seq_rm(self.memory, slot, -1, -1)
                    del running[slot]
                    free.append(slot)
        return times

    def _fits(self, prompt: int) -> bool:
        return self.batch.n_tokens == 0 or self.batch.n_tokens + prompt <= BATCH

    def _put(self, token: int, position: int, slot: int, *, wanted: bool) -> int:
        batch, row = self.batch, self.batch.n_tokens
        batch.token[row], batch.pos[row], batch.n_seq_id[row], batch.logits[row] = token, position, 1, int(wanted)
        batch.seq_id[row][0] = slot
        batch.n_tokens = row + 1
        return row


_QUIET = lib.llama_log_callback(lambda level, text, data: None)
