"""The page's files, its feed over HTTP, the key, and the policy that lets nothing else be loaded."""

import asyncio
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_api import Api, Server

import enginesmith.serve.page.files as page_files
from enginesmith.serve.page.files import FILES

_STATIC = Path(page_files.__file__).parent / "static"


def test_every_file_is_served_with_a_strict_policy(api: Api) -> None:
    assert {path.name for path in _STATIC.iterdir()} == set(FILES.values())
    for path, name in FILES.items():
        answer = api.get(path)
        assert answer.status_code == 200
        assert answer.content == (_STATIC / name).read_bytes()
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert api.get("/page/page.js").headers["content-type"].startswith("text/javascript")
    assert api.post("/", {}).status_code == 405
    assert api.get("/page/../auth.py").status_code == 404


@pytest.mark.parametrize("name", sorted(FILES.values()))
def test_no_file_names_another_host_or_holds_code_inline(name: str) -> None:
    text = (_STATIC / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son[a-z]+=|style=", text)


def test_the_page_is_open_and_its_feed_wants_the_key(make_api: Callable[..., Api]) -> None:
    api = make_api(keys=("secret",))
    for path in FILES:
        assert api.get(path).status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}):
        assert api.get("/page/events", headers=headers).status_code == 401


def test_a_viewer_does_not_keep_the_server(start_server: Callable[..., Any]) -> None:
    with start_server() as server, httpx.stream("GET", f"{server.url}/page/events", timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: model"
        server.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line.startswith("event:")][-1] == "event: closed"
        assert server.process.wait(timeout=30) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


def test_the_feed_tells_of_requests_and_not_what_they_say(api: Api, server: Server) -> None:
    async def watch() -> tuple[str, list[str]]:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            body = {"prompt": ["zyxwvzyxwv" * 20] * 16, "max_tokens": 150, "ignore_eos": True}
            request, lines = None, []
            async with client.stream("GET", "/page/events") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                async for line in answer.aiter_lines():
                    lines.append(line)
                    request = request or asyncio.create_task(client.post("/v1/completions", json=body))
                    if request.done() and line.startswith("data:"):
                        break
            assert request is not None
            return (await request).json()["choices"][0]["text"], lines

    said, lines = api.run(watch())
    assert "zyxwv" not in "".join(lines)
    assert said not in "".join(lines)
    model, *snapshots = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert model.keys() == {"model"}
    seen = [sequence for snapshot in snapshots for sequence in snapshot["sequences"]]
    assert {sequence["prompt"] for sequence in seen} == {200}
    phases = {sequence["phase"] for sequence in seen}  # a few a second: the short ones may pass between two
    assert "decode" in phases
    assert phases <= {"waiting", "prefill", "decode"}
    assert max(sequence["output"] for sequence in seen) > 0
    assert any(snapshot["groups"][0]["shared"] for snapshot in snapshots)
    assert snapshots[-1]["generation_tokens"] - snapshots[0]["generation_tokens"] == 16 * 150
