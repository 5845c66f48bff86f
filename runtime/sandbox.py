"""The child's side of `sandbox_process.py`: answers requests on standard input by a handler, within bounds.

It imports nothing of enginesmith, so that it starts fast. The handler is the file named on the command line; its
`answer` takes a request's arguments, and returns ANSWERED or REFUSED and a text. A limit of the address space and a
timer of the kernel's bound what it takes.
"""

import marshal
import resource
import runpy
import signal
import sys
from collections.abc import Callable

ANSWERED, REFUSED = b"=", b"!"
_SIZE_BYTES = 8


def serve(answer: Callable[..., tuple[bool, str]], max_memory: int) -> None:
    """Answer requests until there are no more.

    A request: its size, then (arguments, seconds) as `marshal` writes them. An answer: its size, then ANSWERED or
    REFUSED and the text in UTF-8. After `seconds` the kernel ends the process.
    """
    _bound(max_memory)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while size := requests.read(_SIZE_BYTES):
        arguments, seconds = marshal.loads(requests.read(int.from_bytes(size, "little")))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answered, text = answer(*arguments)
        data = (ANSWERED if answered else REFUSED) + text.encode("utf-8", "surrogatepass")
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(len(data).to_bytes(_SIZE_BYTES, "little") + data)
        answers.flush()


def _bound(max_memory: int) -> None:
    """Limits of its own, and the timer's signal as it is by default: both are inherited, the signal perhaps ignored."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = max_memory if allowed == resource.RLIM_INFINITY else min(max_memory, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    serve(runpy.run_path(sys.argv[1])["answer"], int(sys.argv[2]))
