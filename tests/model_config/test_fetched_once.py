"""Tests of cases that need the same package: one downloads it, and the others reuse it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fetch_archives import row, serving, simple_page, wheel
from stub_model import Stub, write_zoo
from support import ROOT

from model_config.check import main

pytestmark = pytest.mark.slow

FETCHES = """
    import sys
    sys.path[:0] = [{root!r}, {tests!r}]
    from fetch_archives import row
    from utils.fetch import fetched
    print("kept", fetched(row(Path({archive!r}))))
"""


@pytest.mark.long
def test_two_parallel_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TECO_FETCH_DIR", "TECO_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    root, pages = tmp_path / "zoo", tmp_path / "pages"
    root.mkdir()
    pages.mkdir()
    archive = wheel(pages)
    simple_page(pages, archive)
    code = FETCHES.format(root=str(ROOT), tests=str(ROOT / "tests" / "helpers"), archive=str(archive))

    def fetching(stub: Stub) -> None:
        stub.script("export_onnx.py", '    Path("stub.onnx")', f'{code}    Path("stub.onnx")')

    write_zoo(root, dict.fromkeys(("one", "two", "three"), fetching))
    with serving(pages) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        out = tmp_path / "out.json"
        main(["--json", str(out), "--work-dir", str(tmp_path / "work"), "--jobs", "2"], root=root)
        downloads = [path for path in server.asked if path.endswith(".whl")]
    exports = [
        step for case in json.loads(out.read_text())["cases"] for step in case["steps"] if step["step"] == "export"
    ]
    assert [(step["passed"], step["reason"]) for step in exports] == [(True, "")] * 3
    folder = tmp_path / "TECO_FETCH_DIR" / "mine" / row(archive).key
    assert {Path(step["stdout"]).read_text().strip() for step in exports} == {f"kept {folder}"}
    assert len(downloads) == 1
