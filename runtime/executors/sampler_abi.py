"""plugins/sampling/cpu/abi.h in ctypes, field for field."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_uint32, c_void_p


class EsParallel(Structure):
    """How tasks run on an engine's threads; the runtime hands it on as it is."""

    _fields_ = (("pool", c_void_p), ("threads", c_int32), ("run", c_void_p))


class EsSample(Structure):
    """Tokens to draw, or to report on; see abi.h for shapes. Arrays are addresses, set once and filled every step."""

    _fields_ = (
        ("size", c_uint32),
        ("num_draws", c_int32),
        ("max_logprobs", c_int32),
        ("row", c_void_p),
        ("temperature", c_void_p),
        ("top_p", c_void_p),
        ("min_p", c_void_p),
        ("top_k", c_void_p),
        ("repetition_penalty", c_void_p),
        ("presence_penalty", c_void_p),
        ("frequency_penalty", c_void_p),
        ("seed", c_void_p),
        ("position", c_void_p),
        ("history", c_void_p),
        ("prompt_length", c_void_p),
        ("history_length", c_void_p),
        ("bias_tokens", c_void_p),
        ("bias_values", c_void_p),
        ("bias_length", c_void_p),
        ("num_logprobs", c_void_p),
        ("given_token", c_void_p),
        ("mask", c_void_p),
        ("no_repeat_ngram_size", c_void_p),
        ("bad_words", c_void_p),
        ("bad_words_length", c_void_p),
        ("token", c_void_p),
        ("logprob", c_void_p),
        ("rank", c_void_p),
        ("top_tokens", c_void_p),
        ("top_logprobs", c_void_p),
    )


def declare(library: ctypes.CDLL) -> None:
    """Give the functions of a loaded sampler their types."""
    library.es_sample_size.restype = c_uint32
    library.es_sample_size.argtypes = []
    library.es_sampler_error.restype = c_char_p
    library.es_sampler_error.argtypes = []
    library.es_sampler_open.restype = c_int
    library.es_sampler_open.argtypes = [POINTER(EsParallel), c_int64, POINTER(c_void_p)]
    if hasattr(library, "es_sampler_open_alone"):  # those of older engines for the CPU do not need it
        library.es_sampler_open_alone.restype = c_int
        library.es_sampler_open_alone.argtypes = [c_int32, c_int64, POINTER(c_void_p)]
    library.es_sampler_close.restype = None
    library.es_sampler_close.argtypes = [c_void_p]
    library.es_sample.restype = c_int
    library.es_sample.argtypes = [c_void_p, c_void_p, c_int32, POINTER(EsSample)]
