"""``docs/how-to/training_accuracy.md``: its commands are run as they stand there, and print what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import follow, shown
from zoo_copy import with_teco

PAGE = (ROOT / "docs" / "how-to" / "training_accuracy.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
def test_the_page_is_followed(tmp_path: Path) -> None:
    for name in ("torch", "h5py", "rich", "jinja2"):
        pytest.importorskip(name)
    folder = tmp_path / "walk"
    folder.mkdir()
    where = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1"}
    del where["TECO_CACHE_DIR"]  # the compiled extension lies in the usual folder
    printed = follow(PAGE, folder, where).splitlines()
    assert [line for line in shown(PAGE, "text") if line not in printed] == []
    found = json.loads((folder / "wrong.json").read_text(encoding="utf-8"))
    assert found["first_bad"]["call"] == "aten.mm.default/3"
    assert "<polyline" in (folder / "wrong.html").read_text(encoding="utf-8")
    [line] = [line for line in printed if line.startswith("overflow: ")]
    assert re.search(r", backward of step 0, loss scale 1e\+09 \(train\.py:\d+ in <module>\)$", line)
    assert list((folder / "arrays").glob("add_.forward_add_.*.output.0.npy"))
    assert "Sequential.0 [(32,), (8, 16), (16, 32)]" in printed


def test_the_page_can_be_read() -> None:
    assert not [line for line in PAGE.splitlines() if len(line) > 150 and not line.startswith("|")]
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE)
    assert not [link for link in links if not (ROOT / "docs/how-to" / link).exists()]
