"""``docs/how-to/adding_a_model.md``, without a clone: what it says is done in an empty folder, section by section."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, change, follow
from zoo_copy import with_teco

WHOLE = (ROOT / "docs" / "how-to" / "adding_a_model.md").read_text(encoding="utf-8")
PAGE = WHOLE.split("\n## 6. ")[0] + "\n## "
SECTIONS = dict(re.findall(r"^## (\d)\. [^\n]+\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
NEEDS = {"1": ["torch", "torchvision", "sklearn"], "2": ["timm"], "3": ["transformers"], "4": ["torch", "sklearn"]}
GOOD = {"1": 0.9, "2": 0.98, "3": 0.95, "4": 0.95}
"""What each network reaches at least: a page of random weights would be at 0.1, or 0.5 of two classes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sections use files that others have said to write; each section runs by itself."""
    folder = tmp_path_factory.mktemp("my_models")
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, folder)
    return folder


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    return {**with_teco(ROOT, folder.parent / "bin"), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "section", [pytest.param(one, marks=pytest.mark.long) if one in "123" else one for one in NEEDS]
)
def test_framework_model_is_exported_and_evaluated(section: str, folder: Path, environment: dict[str, str]) -> None:
    missing = [name for name in NEEDS[section] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    printed = follow(SECTIONS[section], folder, environment)
    source = float(re.findall(r"^accuracy (\S+) on ", printed, re.MULTILINE)[0])
    onnx, sdaa = map(float, re.findall(r"^eval_metric (\S+)$", printed, re.MULTILINE))
    assert source >= GOOD[section]
    assert onnx == pytest.approx(source, abs=1e-6)
    assert sdaa == pytest.approx(source, abs=0.01)
    assert len(re.findall(r"largest relative error", printed)) == 3
    if section != "3":
        assert re.search(r"^no bad node: \d+ tensors compared", printed, re.MULTILINE)
        assert re.search(r"^(0081\.png|one_row\.npz\[0\]) +7 ", printed, re.MULTILINE)
    else:
        assert re.search(r"positive  (0\.\d\d|1\.00)", printed)


def test_every_section_is_run() -> None:
    assert sorted(SECTIONS) == ["1", "2", "3", "4", "5"]
    assert set(NEEDS) == set(GOOD) == set(SECTIONS) - {"5"}


def test_the_page_can_be_read() -> None:
    assert not [line for line in PAGE.splitlines() if len(line) > 150]
    for name in ("README.md", "README.zh-CN.md", "docs/how-to/models.md"):
        assert "adding_a_model.md" in (ROOT / name).read_text(encoding="utf-8"), name
    assert (ROOT / "tests" / "utils" / "export" / "test_paddle_page.py").is_file()
    assert "tests/utils/export/test_paddle_page.py" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
