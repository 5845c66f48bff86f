"""plugins/cpu/abi.h in ctypes: the C interface between a compiled engine and the runtime, field for field."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int32, c_uint32, c_uint64, c_void_p

ABI_VERSION = 1


class EsOpenArgs(Structure):
    """What `es_open` is given; see abi.h."""

    _fields_ = (
        ("weights", c_void_p),
        ("weights_bytes", c_uint64),
        ("num_blocks", c_void_p),
        ("num_groups", c_int32),
        ("threads", c_int32),
    )


class EsStep(Structure):
    """One step over packed sequences; see abi.h for shapes. Arrays are addresses, set once and filled every step."""

    _fields_ = (
        ("num_tokens", c_int32),
        ("num_seqs", c_int32),
        ("num_rows", c_int32),
        ("max_blocks", c_int32),
        ("input_ids", c_void_p),
        ("position_ids", c_void_p),
        ("query_start", c_void_p),
        ("context_length", c_void_p),
        ("block_table", c_void_p),
        ("logits_rows", c_void_p),
    )


class EsSample(Structure):
    """Sampling of the rows of the last step; see abi.h for shapes."""

    _fields_ = (
        ("num_rows", c_int32),
        ("max_logprobs", c_int32),
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
        ("token", c_void_p),
        ("logprob", c_void_p),
        ("rank", c_void_p),
        ("top_tokens", c_void_p),
        ("top_logprobs", c_void_p),
    )


def declare(library: ctypes.CDLL) -> None:
    """Give the functions of a loaded engine library their types."""
    library.es_abi_version.restype = c_uint32
    library.es_abi_version.argtypes = []
    library.es_last_error.restype = c_char_p
    library.es_last_error.argtypes = []
    library.es_open.restype = c_int
    library.es_open.argtypes = [POINTER(EsOpenArgs), POINTER(c_void_p)]
    library.es_close.restype = None
    library.es_close.argtypes = [c_void_p]
    library.es_step.restype = c_int
    library.es_step.argtypes = [c_void_p, POINTER(EsStep)]
    library.es_logits.restype = POINTER(c_float)
    library.es_logits.argtypes = [c_void_p]
    library.es_sample.restype = c_int
    library.es_sample.argtypes = [c_void_p, POINTER(EsSample)]
