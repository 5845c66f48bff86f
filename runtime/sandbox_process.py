"""A process that runs what strangers wrote, as its parent sees it: started by the first request, then kept warm."""

import atexit
import contextlib
import marshal
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from signal import SIGALRM, Signals
from typing import Any

_SIZE_BYTES = 8
_CHILD = Path(__file__).with_name("sandbox.py")


class Refused(Exception):
    """The child's handler refused a request; the message says why."""


class Ended(Exception):
    """The child ended over a request, or could not be started. `out_of_time`: its timer ended it."""

    def __init__(self, how: str, *, out_of_time: bool = False) -> None:
        super().__init__(how)
        self.out_of_time = out_of_time


class SandboxProcess:
    """One child, which threads share in turns; a process that was forked starts its own.

    It ends when its socket closes, and so with its parent. (The kernel's signal on a parent's death would not do: it
    comes when the thread that started the child ends.) Where a request takes too long, the child's own timer kills it,
    also when the parent is gone, and the next request starts another.
    """

    def __init__(self, handler: Path, max_memory: int) -> None:
        """`handler`: a file that defines `answer` (see sandbox.py); `max_memory`: its address space, bytes."""
        self._handler = handler
        self._max_memory = max_memory
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._stop)

    def start(self) -> None:
        """Start the child now, beside other work, lest the first request wait for it. Failures are told by `ask`."""
        with self._lock, contextlib.suppress(OSError):
            self._connection()

    def ask(self, request: bytes) -> str:
        """The handler's answer to a request that `packed` made. Raises Refused, or Ended."""
        with self._lock:
            try:
                answer = self._exchange(request)
            except OSError as error:
                self._stop()
                raise Ended(str(error)) from None
            except BaseException:  # an interrupt, which leaves an answer unread
                self._stop()
                raise
        text = answer[1:].decode("utf-8", "surrogatepass")
        if answer[:1] != b"=":
            raise Refused(text)
        return text

    def _exchange(self, request: bytes) -> bytes:
        try:
            answer = self._ask(request)
        except ConnectionError:
            answer = b""
        if answer:
            return answer
        status = self._stop()
        how = f"signal {Signals(-status).name}" if status < 0 else f"status {status}"
        raise Ended(how, out_of_time=status == -SIGALRM)

    def _ask(self, request: bytes) -> bytes:
        """The answer; empty if the child ended before it was whole."""
        connection = self._connection()
        connection.sendall(len(request).to_bytes(_SIZE_BYTES, "little") + request)
        count = int.from_bytes(_receive(connection, _SIZE_BYTES), "little")
        answer = _receive(connection, count)
        return answer if len(answer) == count else b""

    def _connection(self) -> socket.socket:
        """The socket of a child that lives."""
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._stop()
        modules = os.pathsep.join(path for path in sys.path if path and isinstance(path, str))  # Python ignores others
        ours, theirs = socket.socketpair()
        with theirs:
            self._socket = ours
            self._process = subprocess.Popen(
                # Without `site`, which would cost as much as Jinja does; its work is done in the path given.
                [sys.executable, "-S", "-P", str(_CHILD), str(self._handler), str(self._max_memory)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for the parent
                env=os.environ | {"PYTHONPATH": modules},
            )
        return ours

    def _stop(self) -> int:
        """End the child, if there is one; returns its exit status."""
        process, connection = self._process, self._socket
        self._process = self._socket = None
        if connection is not None:
            connection.close()
        if process is None:
            return 0
        process.kill()
        return process.wait()

    def _forget(self) -> None:
        """In a forked process: the child is its parent's, and ends with it only if no copy of the socket stays open."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.returncode = 0  # none that is left running, for Popen's warning
        self._process = self._socket = None
        self._lock = threading.Lock()


def packed(arguments: tuple[Any, ...], max_seconds: float) -> bytes:
    """A request: arguments of the handler, which are plain data, and the time that it may take."""
    return marshal.dumps((arguments, max_seconds))


def _receive(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer where the connection ends. The kernel returns early from a wait for all of them when the
    process gets a signal."""
    data = bytearray()
    while len(data) < count and (part := connection.recv(count - len(data), socket.MSG_WAITALL)):
        data += part
    return bytes(data)
