"""The server as tests call it: its application in this process, and the handle of one that runs."""

import asyncio
import json
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

import httpx

from enginesmith.runtime.async_llm import AsyncLLM
from enginesmith.runtime.outputs import RequestOutput
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.serve.app import create_app
from enginesmith.serve.auth import ApiKeys
from enginesmith.serve.lifecycle import Lifecycle
from enginesmith.serve.options import ServeOptions


class Api:
    """The application, called without a network. Its engine is `llm`."""

    def __init__(self, llm: AsyncLLM, runner: asyncio.Runner, keys: tuple[str, ...] = (), **options: Any) -> None:
        self.llm, self._runner = llm, runner
        self.lifecycle = Lifecycle()
        self.connections = 0
        self.app = create_app(llm, ServeOptions(**options), ApiKeys(keys), self.lifecycle, lambda: self.connections)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://server")

    def run(self, coroutine: Any) -> Any:
        """What a coroutine gives."""
        return self._runner.run(coroutine)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """The answer to a JSON body; `content` and `headers` as httpx has them."""
        given = more if "content" in more else more | {"json": body}
        return self.run(self.client.post(path, **given))

    def get(self, path: str, **more: Any) -> httpx.Response:
        """The answer to a GET."""
        return self.run(self.client.get(path, **more))

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a streamed answer, the last of which must be [DONE]."""
        answer = self.post(path, body | {"stream": True})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        *events, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def engine_answer(self, prompt: str | list[int], **params: Any) -> RequestOutput:
        """What the engine itself gives."""

        async def whole() -> RequestOutput:
            pieces = [piece async for piece in self.llm.generate(prompt, SamplingParams(**params))]
            first = pieces[0].outputs[0]
            for piece in pieces[1:]:
                (added,) = piece.outputs
                first.text += added.text
                first.token_ids += added.token_ids
                first.finish_reason = added.finish_reason
                if first.logprobs is not None:
                    first.logprobs += added.logprobs or []
            return pieces[0]

        return self.run(whole())


@dataclass
class Server:
    """A server that runs."""

    process: subprocess.Popen[str]
    url: str
    port: int

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)
