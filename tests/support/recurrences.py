"""Runs the kernel of a recurrent operation over sequences, in steps, through a small C++ driver."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

DRIVER = """
#include "{header}"
using namespace es;
extern "C" void run(int which, int threads, const float* const* x, float* y, float* data, int64_t stride, int seqs,
                    const int32_t* query_start, const int32_t* slots) {{
  ThreadPool pool(threads);
  const StateLayer states{{data, stride}};
  const StateStep step{{seqs, query_start, slots}};
  switch (which) {{
{cases}
  }}
}}
"""


def driver(header: str, calls: Sequence[str]) -> str:
    """C++ with a function that makes one of these calls, of `pool`, `states` and `step`, inputs x[i] and output y."""
    cases = "".join(f"    case {which}: {call}; break;\n" for which, call in enumerate(calls))
    return DRIVER.format(header=header, cases=cases)


@dataclass
class Recurrence:
    """Call `which` of a driver. `state_floats`: of a sequence; `fixed`: the last inputs, which are not of tokens."""

    library: ctypes.CDLL
    which: int
    state_floats: int
    fixed: Sequence[np.ndarray] = ()

    def whole(self, sequence: Sequence[np.ndarray], width: tuple[int, ...]) -> np.ndarray:
        """The outputs [T, *width] of one sequence, of inputs [T, ...], in one step."""
        return self.together([sequence], width, [len(sequence[0])], 1)[0]

    def together(
        self, sequences: Sequence[Sequence[np.ndarray]], width: tuple[int, ...], counts: Sequence[int], threads: int
    ) -> list[np.ndarray]:
        """The outputs of several sequences, `counts` tokens of each at most in a step, in turn."""
        slots = np.arange(len(sequences), dtype=np.int32)[::-1].copy()
        states = np.full((len(sequences), self.state_floats + 16), np.nan, np.float32)
        states[:, : self.state_floats] = 0
        done, outputs = [0] * len(sequences), [np.zeros((0, *width), np.float32)] * len(sequences)
        for turn, count in _endless(counts):
            left = [i for i, sequence in enumerate(sequences) if done[i] < len(sequence[0])]
            if not left:
                return outputs
            present = [i for i in left if (i + turn) % 3] or left
            ends = {i: min(done[i] + count, len(sequences[i][0])) for i in present}
            starts = np.cumsum([0, *(ends[i] - done[i] for i in present)]).astype(np.int32)
            parts = [
                np.concatenate([sequences[i][k][done[i] : ends[i]] for i in present]) for k in range(len(sequences[0]))
            ]
            y = np.full((starts[-1], *width), np.nan, np.float32)
            self._call(threads, [*parts, *self.fixed], y, states, starts, slots[present])
            for i, start, end in zip(present, starts, starts[1:], strict=False):
                outputs[i] = np.concatenate([outputs[i], y[start:end]])
                done[i] = ends[i]
        raise AssertionError

    def _call(
        self,
        threads: int,
        inputs: Sequence[np.ndarray],
        y: np.ndarray,
        states: np.ndarray,
        starts: np.ndarray,
        slots: np.ndarray,
    ) -> None:
        pointers = (ctypes.c_void_p * len(inputs))(*(x.ctypes.data for x in inputs))
        arrays = [ctypes.c_void_p(x.ctypes.data) for x in (y, states)]
        self.library.run(
            self.which, threads, pointers, *arrays, ctypes.c_int64(states.shape[1]), len(slots),
            *(ctypes.c_void_p(x.ctypes.data) for x in (starts, slots)),
        )  # fmt: skip


def _endless(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    turn = 0
    while True:
        yield turn, counts[turn % len(counts)]
        turn += 1


def assert_same_bits(recurrence: Recurrence, sequences: Sequence[Sequence[np.ndarray]], width: tuple[int, ...]) -> None:
    """However the sequences are cut into steps, and on however many threads."""
    alone = [recurrence.whole(sequence, width) for sequence in sequences]
    for counts, threads in [([1], 1), ([3, 1, 7], 3), ([1000], 2)]:
        for one, other in zip(alone, recurrence.together(sequences, width, counts, threads), strict=True):
            np.testing.assert_array_equal(other, one, err_msg=f"steps of {counts} tokens, {threads} threads")
