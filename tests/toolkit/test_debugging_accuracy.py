"""docs/how-to/debugging_accuracy.md works: its commands end with a model that passes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import follow, shown
from zoo_copy import with_teco

PAGE = (ROOT / "docs" / "how-to" / "debugging_accuracy.md").read_text(encoding="utf-8")
CULPRITS = ["norm/square", "norm/mean", "norm/epsilon", "norm/root"]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder in which the page was followed, and all that its commands printed."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "example").symlink_to(ROOT / "example")
    return folder, follow(PAGE, folder, with_teco(ROOT, folder / "bin"))


@pytest.mark.slow
@pytest.mark.long
def test_the_page_matches_the_output_of_the_commands(followed: tuple[Path, str]) -> None:
    lines = shown(PAGE)
    assert len(lines) == 5
    printed = followed[1].splitlines()
    assert [line for line in lines if line not in printed] == []


@pytest.mark.slow
@pytest.mark.long
def test_the_model_that_failed_passes(followed: tuple[Path, str]) -> None:
    folder, _ = followed
    found = json.loads((folder / "fix.json").read_text())
    assert (found["verdict"], found["culprits"]) == ("fixed", CULPRITS)
    verdicts = {trial["what"]: trial["verdict"] for trial in found["trials"]}
    assert verdicts["all nodes float16"] == "FAIL"
    assert verdicts["the pass file"] == verdicts["the mixed-precision ONNX"] == "PASS"
    after = json.loads((folder / "after.json").read_text())
    assert all(row["inf"] == row["nan"] == 0 for row in after["rows"])
    by_task = json.loads((folder / "by_task.json").read_text())
    assert (by_task["verdict"], by_task["culprits"]) == ("fixed", CULPRITS)
    suspects = json.loads((folder / "suspects.json").read_text())
    assert "without a change" in suspects["lead"]
    assert suspects["rows"][0]["name"] == "nothing changed"


def test_images_of_page_exist_and_are_small() -> None:
    images = [ROOT / "docs/how-to" / name for name in re.findall(r"!\[.*?\]\((.+?)\)", PAGE)]
    assert [image.name for image in images] == ["overflow_page.png", "fix_page.png"]
    assert all(0 < image.stat().st_size < 150_000 for image in images)


@pytest.mark.slow
@pytest.mark.long
def test_pages_are_complete(followed: tuple[Path, str]) -> None:
    for name in ("fix.html", "overflow.html"):
        page = (followed[0] / name).read_text(encoding="utf-8")
        assert "<svg" in page
        assert "norm/square" in page
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
