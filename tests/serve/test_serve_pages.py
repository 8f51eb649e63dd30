"""The pages of models in a browser: a file, a text, and errors."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
