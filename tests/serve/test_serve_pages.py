"""The pages of models in a browser: a file, a text, and errors."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, serving
from support import DIGITS, ROOT

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

STATIC = ROOT / "serve" / "http" / "static"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", "language_id", f"raw={DIGITS / 'digits_dyn.onnx'}") as found:
        yield found


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("chromium is missing")
    return found


def rendered(server: Served, path: str, profile: Path) -> str:
    """Return the document of a page after its scripts have run."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--virtual-time-budget=8000"]
    words += ["--dump-dom", f"http://127.0.0.1:{server.http}{path}"]
    done = subprocess.run([chromium(), *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pages_and_files_are_served_with_their_types(server: Served) -> None:
    for path, kind in (
        ("/models/", "text/html"),
        ("/models/digits", "text/html"),
        ("/static/page.js", "text/javascript"),
    ):
        found = server.ask(path)
        assert (found.status, found.headers["content-type"].partition(";")[0]) == (200, kind)
        assert "default-src 'self'" in found.headers["content-security-policy"]
    assert server.ask("/").status == 307


def test_pages_load_nothing_from_elsewhere() -> None:
    for file in STATIC.iterdir():
        places = re.findall(r"(?:src|href)=\"([^\"]+)\"|url\(([^)]+)\)|https?://", file.read_text(encoding="utf-8"))
        assert all(one.startswith("/") for pair in places for one in pair if one), file
        assert "innerHTML" not in file.read_text(encoding="utf-8")


def test_the_list_of_models(server: Served, tmp_path: Path) -> None:
    found = rendered(server, "/models/", tmp_path)
    assert re.findall(r'<a href="/models/(\w+)">', found) == ["digits", "language_id", "raw"]
    assert found.count("READY") == 3


def test_the_page_of_a_model_shows_what_it_takes(server: Served, tmp_path: Path) -> None:
    found = html.unescape(rendered(server, "/models/digits", tmp_path))
    assert '<h1 id="name">digits</h1>' in found
    assert "classification, " in found
    assert "-1 x 3 x 32 x 32" in found
    text = rendered(server, "/models/language_id", tmp_path)
    assert re.search(r'<form id="text-form">', text)
    assert re.search(r'<form id="text-form" hidden', found)


class Browser:
    """A headless Chromium, driven over its debugging protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number = socket, 0

    async def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            found = await self._socket.receive_json(timeout=60)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    async def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        return (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression has a value that counts as true, and return it."""
        for _ in range(600):
            found = await self.value(expression)
            if found:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"{expression} is still {found!r}")

    async def open(self, address: str, loaded: str) -> None:
        await self.call("Page.navigate", url=address)
        await self.until(f"location.href === '{address}' && document.readyState === 'complete' && ({loaded})")

    async def choose(self, selector: str, file: Path) -> None:
        """Choose a file in a file input."""
        root = (await self.call("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.call("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)


def driven(profile: Path, steps: Callable[[Browser], Awaitable[None]]) -> None:
    """Start a browser, and take some steps in it."""
    aiohttp = pytest.importorskip("aiohttp")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    process = subprocess.Popen([chromium(), *words, "about:blank"], stderr=subprocess.DEVNULL)

    async def run() -> None:
        ports = profile / "DevToolsActivePort"
        while not ports.is_file() or "\n" not in ports.read_text():
            await asyncio.sleep(0.05)
        port = ports.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                await steps(Browser(socket))

    try:
        asyncio.run(run())
    finally:
        process.kill()
        process.wait()


def test_an_image_is_answered_on_the_page(server: Served, tmp_path: Path) -> None:
    async def steps(browser: Browser) -> None:
        await browser.open(f"http://127.0.0.1:{server.http}/models/digits", "by('about').textContent")
        await browser.choose("#file", DIGITS / "data/val/7/0081.png")
        assert (await browser.until("by('answer').textContent")).startswith("7")
        assert "infer" in await browser.value("by('timing').textContent")
        assert await browser.until("document.querySelectorAll('figure:not([hidden]) img').length === 2")
        assert await browser.until("[...document.querySelectorAll('figure img')].every(one => one.naturalWidth > 0)")
        broken = tmp_path / "broken.png"
        broken.write_bytes(b"not an image")
        await browser.choose("#file", broken)
        assert "broken" not in await browser.until("by('message').textContent")
        assert await browser.value("by('result').hidden")

    driven(tmp_path / "profile", steps)


def test_a_text_is_answered_on_the_page(server: Served, tmp_path: Path) -> None:
    async def steps(browser: Browser) -> None:
        await browser.open(f"http://127.0.0.1:{server.http}/models/language_id", "by('about').textContent")
        await browser.value("by('text').value = 'Bonjour tout le monde'; by('text-form').requestSubmit()")
        assert "French" in await browser.until("by('answer').textContent")

    driven(tmp_path / "profile", steps)


def test_a_text_grows_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")

    async def steps(browser: Browser) -> None:
        await browser.open(f"http://127.0.0.1:{server.http}/models/tiny_gpt", "by('about').textContent")
        await browser.value("by('text').value = 'def main('; by('text-form').requestSubmit()")
        assert (await browser.until("by('timing').textContent")).startswith("first piece")
        assert (await browser.until("by('answer').textContent")).startswith("def main(")

    with serving("tiny_gpt") as server:
        driven(tmp_path / "profile", steps)


def test_the_page_asks_for_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")

    async def steps(browser: Browser) -> None:
        await browser.open(f"http://127.0.0.1:{server.http}/models/digits", "!by('token-row').hidden")
        await browser.value("by('token').value = 'abc'; by('use').click()")
        assert "classification" in await browser.until("by('about').textContent")

    with serving("digits", "--token_file", tmp_path / "token") as server:
        driven(tmp_path / "profile", steps)
