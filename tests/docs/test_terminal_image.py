"""The images of the README are small and there; the script draws what a command prints, and reports a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import ROOT

pytest.importorskip("rich")
SCRIPT = ROOT / "docs/images/terminal.py"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def texts(image: Path) -> str:
    """Return the text of an SVG in one line; ElementTree refuses a file that is not XML."""
    words = "".join(ElementTree.parse(image).getroot().itertext())  # noqa: S314 - our own file
    return re.sub(r"\s+", " ", words.replace("\u00a0", " "))


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_images_of_the_readme_are_small_and_there(name: str) -> None:
    images = re.findall(r'<img src="([^"]+)" [^>]*alt="[^"]+"', (ROOT / name).read_text(encoding="utf-8"))
    assert len(images) == 2
    assert sum((ROOT / image).stat().st_size for image in images) < 250_000


def test_the_stored_image_shows_an_answer_and_a_check_without_other_hosts() -> None:
    shown = texts(ROOT / "docs/images/terminal.svg")
    assert "9 objects: 3 0.95 at" in shown
    assert "PASS: 1 PASS; exit code 0" in shown
    assert "url(http" not in (ROOT / "docs/images/terminal.svg").read_text(encoding="utf-8")


def test_what_commands_print_is_drawn_in_their_order(tmp_path: Path) -> None:
    image = tmp_path / "image.svg"
    done = run(image, "--columns", 40, "printf 'one\\033[31mred\\033[0m\\n'", "printf two<&>")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\$ printf.*onered.*\$ printf two<&> two<&>", texts(image))
    assert "fill: #cc555a" in image.read_text(encoding="utf-8")


def test_a_command_that_fails_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    done = run(tmp_path / "image.svg", "ls /no/such/folder")
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ls /no/such/folder ended with exit code")
    assert not (tmp_path / "image.svg").exists()
