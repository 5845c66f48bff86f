"""plugins/cpu/abi.h in ctypes: the C interface between a compiled engine and the runtime, field for field."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p

from .sampler_abi import EsParallel

ABI_VERSION = 3


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
        ("state_slots", c_void_p),
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
    library.es_logits.restype = c_void_p
    library.es_logits.argtypes = [c_void_p]
    library.es_parallel.restype = None
    library.es_parallel.argtypes = [c_void_p, POINTER(EsParallel)]
