"""The process that renders chat templates, as its parent sees it: started by the first chat, then kept warm."""

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

from ..errors import ChatTemplateError, RequestError
from ..units import shown_size

MAX_SECONDS = 5.0
MAX_MEMORY = 512 << 20
_MAX_REQUEST = 64 << 20
_SIZE_BYTES = 8
_PROGRAM = Path(__file__).with_name("template_sandbox.py")


class TemplateProcess:
    """One child for all templates, which threads share in turns; a process that was forked starts its own.

    It ends when its socket closes, and so with its parent. (The kernel's signal on a parent's death would not do: it
    comes when the thread that started the child ends.) Where a template runs too long, the child's own timer kills it,
    also when the parent is gone, and the next rendering starts another.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._stop)

    def start(self) -> None:
        """Start the child now, beside other work, lest the first chat wait for it. Failures are told by `render`."""
        with self._lock, contextlib.suppress(OSError):
            self._connection()

    def render(self, source: str, variables: dict[str, Any] | None) -> str:
        """What the template makes of `variables`, plain data; without them it is only compiled.

        Raises ChatTemplateError for whatever goes wrong in a template, RequestError for variables too large.
        """
        request = marshal.dumps((source, variables, MAX_SECONDS))
        if len(request) > _MAX_REQUEST:
            raise RequestError(
                f"the conversation has {shown_size(len(request))}; a chat may have {shown_size(_MAX_REQUEST)}"
            )
        with self._lock:
            try:
                answer = self._exchange(request)
            except OSError as error:
                self._stop()
                raise ChatTemplateError(f"the process that renders chat templates failed: {error}") from None
            except BaseException:  # an interrupt, which leaves an answer unread
                self._stop()
                raise
        text = answer[1:].decode("utf-8", "surrogatepass")
        if answer[:1] != b"=":
            raise ChatTemplateError(f"the chat template {text}")
        return text

    def _exchange(self, request: bytes) -> bytes:
        try:
            answer = self._ask(request)
        except ConnectionError:
            answer = b""
        if answer:
            return answer
        status = self._stop()
        if status == -SIGALRM:
            raise ChatTemplateError(f"the chat template took more than {MAX_SECONDS:g} seconds")
        how = f"signal {Signals(-status).name}" if status < 0 else f"status {status}"
        raise ChatTemplateError(f"the chat template ended the process that rendered it ({how})")

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
                [sys.executable, "-S", "-P", str(_PROGRAM), str(MAX_MEMORY)],
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


def _receive(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer where the connection ends. The kernel returns early from a wait for all of them when the
    process gets a signal."""
    data = bytearray()
    while len(data) < count and (part := connection.recv(count - len(data), socket.MSG_WAITALL)):
        data += part
    return bytes(data)


template_process = TemplateProcess()
