"""A page in headless Chromium, by the DevTools protocol over a pipe: no driver, no library."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 30.0  # seconds


class Tab:
    """One page. `console` has what it logged and what the browser complained of, violations of its policy too."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session = 0, ""
        self.console: list[str] = []
        self.requested: list[str] = []
        """URLs that the page asked for."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._on_event(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, url: str) -> None:
        """Go there, and wait for the page and its scripts."""
        self.call("Page.navigate", url="about:blank")
        self.console.clear()
        self.requested.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("location.protocol !== 'about:' && document.readyState === 'complete'")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression as soon as it is a true one."""
        until = time.monotonic() + _PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < until, (expression, self.console, self.evaluate("document.body.innerText"))
            time.sleep(0.1)
        return value

    def resize(self, width: int, height: int, *, scale: float = 1, dark: bool = False, mobile: bool = False) -> None:
        """Be a screen of that size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str) -> None:
        """A key of the keyboard, by its name in the DOM."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is seen, as PNG; `whole`: all of the page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "chromium has ended"
            message += byte
        return json.loads(message)

    def _on_event(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.console.append(str([argument.get("value") for argument in params["args"]]))
            case "Runtime.exceptionThrown":
                self.console.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.console.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])


@contextmanager
def open_tab(profile: Path) -> Iterator[Tab]:
    """A tab of a Chromium of its own, whose profile is a folder that nothing else uses."""
    assert CHROMIUM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    read, write = (fcntl(fd, F_DUPFD, 10) for fd in (theirs_in, theirs_out))
    for fd in (theirs_in, theirs_out):
        os.close(fd)

    def connect() -> None:  # Chromium reads from 3 and writes to 4
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=connect,
        pass_fds=(3, 4),
    )
    for fd in (read, write):
        os.close(fd)
    try:
        yield Tab(ours_out, ours_in)
    finally:
        process.kill()
        process.wait()
        os.close(ours_out)
