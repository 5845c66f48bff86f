"""The page in a browser: what it shows of an engine under load, by which means, and on which screens."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chromium import CHROMIUM, Tab, open_tab
from http_api import Server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")

_ROWS = "document.querySelectorAll('#batch tr').length"
_STATUS = "document.getElementById('status').dataset.state"
_MAP = "document.querySelector('canvas')"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser, which each test takes elsewhere."""
    with open_tab(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def load(server: Server) -> Iterator[None]:
    """Four requests that begin alike and others behind them, again and again."""
    done = threading.Event()

    async def run() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            body = {"prompt": ["abcdefghij" * 10 + str(number) for number in range(16)], "max_tokens": 250}
            while not done.is_set():
                await client.post("/v1/completions", json=body | {"ignore_eos": True})

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    yield
    done.set()
    thread.join()


def test_it_shows_what_runs(tab: Tab, server: Server, load: None) -> None:
    tab.resize(1280, 900)
    tab.open(server.url)
    tab.wait_for(f"{_STATUS} === 'live' && {_ROWS} === 4")
    assert "decode" in tab.evaluate("document.getElementById('batch').innerText")
    tab.wait_for("document.getElementById('queue').children.length > 0")
    assert "blocks in use" in tab.wait_for(f"{_MAP}.getAttribute('aria-label')")
    tab.wait_for("parseFloat(document.querySelector('#decode strong').innerText.replace(',', '')) > 0")
    tab.wait_for("document.querySelector('#itl .note').innerText.includes('99%')")
    assert tab.evaluate(_pixels()) > 2  # free blocks, and colours of sequences
    assert tab.console == []  # no error, and nothing that the policy refused
    hosts = {url.split("/")[2] for url in tab.requested}
    assert hosts == {f"127.0.0.1:{server.port}"}


def test_a_block_is_told_by_the_keyboard(tab: Tab, server: Server, load: None) -> None:
    tab.resize(1280, 900)
    tab.open(server.url)
    tab.wait_for(f"{_ROWS} === 4")
    tab.evaluate(f"{_MAP}.focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        tab.press(key)
    assert tab.evaluate("document.getElementById('readout').innerText").startswith("Block 0: ")
    tab.evaluate("document.querySelector('#batch button').click()")
    assert tab.evaluate("document.querySelector('#batch button').getAttribute('aria-pressed')") == "true"


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(tab: Tab, server: Server, load: None, dark: bool) -> None:
    tab.resize(360, 780, dark=dark, mobile=True)
    tab.open(server.url)
    tab.wait_for(f"{_ROWS} === 4")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(14, 17, 20)") == dark


def test_holding_the_page_ends_its_connection(tab: Tab, server: Server) -> None:
    tab.open(server.url)
    tab.wait_for(f"{_STATUS} === 'live'")
    tab.evaluate("document.getElementById('hold').click()")
    assert tab.evaluate(_STATUS) == "held"
    tab.evaluate("document.getElementById('hold').click()")
    tab.wait_for(f"{_STATUS} === 'live'")


def test_the_page_asks_for_the_key(tab: Tab, start_server: Callable[..., Any], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with start_server("--api-key-file", keys) as server:
        tab.open(server.url)
        tab.wait_for("!document.getElementById('key-form').hidden")
        assert tab.evaluate("document.getElementById('main').hidden")
        _give_key(tab, "wrong")
        tab.wait_for("document.getElementById('key-reason').innerText.includes('does not know')")
        _give_key(tab, "secret")
        tab.wait_for(f"{_STATUS} === 'live'")
        assert tab.evaluate("document.getElementById('key-form').hidden")
        assert not any("secret" in url for url in tab.requested)


def _give_key(tab: Tab, key: str) -> None:
    tab.evaluate(f"document.getElementById('key').value = '{key}'")
    tab.evaluate("document.querySelector('#key-form button').click()")


def _pixels() -> str:
    """How many colours the map has."""
    return f"""(() => {{
        const canvas = {_MAP};
        const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
    }})()"""
