"""A step that fails because git ignores a file of its model says so, and how to add the file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from test_case_runner import EXPORT, PARAMS, SUMMARY

from model_config.cases.config import Case, load_cases
from model_config.results import Finding
from model_config.run.one_case import Settings, check_case
from model_config.run.runner import Slot

NEEDS = (
    "from pathlib import Path\n"
    "path = Path(__file__).with_name('net.pth')\n"
    "if not path.exists():\n"
    "    raise SystemExit(f'error: {path}: does not exist')\n"
)
CLOSING = f"print('eval_metric 0.75')\nprint({SUMMARY!r})\n"


def case_of(root: Path, *, ignored: str, export: str) -> Case:
    """Write a repository with one model, whose export reads net.pth; git ignores a pattern."""
    folder = root / "example" / "x" / "net"
    folder.mkdir(parents=True)
    (folder / "export.py").write_text(export, encoding="utf-8")
    (folder / "valid.py").write_text(CLOSING, encoding="utf-8")
    (folder / "net.pth").write_text("weights", encoding="utf-8")
    (folder / "other.pth").write_text("weights", encoding="utf-8")
    (root / ".gitignore").write_text(ignored, encoding="utf-8")
    runs = {f"run_example_{name}": {"run_file": "valid.py", "params": PARAMS} for name in ("valid", "single", "multi")}
    steps = {"run_export": {"run_file": "export.py"}, **runs}
    config = root / "model_config" / "model.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump([{"case_name": "net", "run_dir": "TecoInference/example/x/net", **steps}]))
    for words in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(words, cwd=root, check=True)
    (case,) = load_cases([config], root)
    return case


def findings(case: Case, root: Path, work: Path) -> list[Finding]:
    work.mkdir()
    result = check_case(case, Slot(), Settings(work, root, cached=False))
    return [one for one in result.findings if one.rule == "ignored"]


@pytest.mark.slow
def test_an_ignored_file_that_a_step_names(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (found,) = findings(case_of(root, ignored="*.pth\n", export=NEEDS + EXPORT), root, tmp_path / "work")
    assert found.file == "example/x/net/net.pth"
    assert "git add -f example/x/net/net.pth" in found.fix


@pytest.mark.slow
@pytest.mark.parametrize(("ignored", "export"), [("*.tmp\n", NEEDS + EXPORT), ("*.pth\n", "raise SystemExit(1)\n")])
def test_nothing_is_said_of_other_failures(ignored: str, export: str, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    assert findings(case_of(root, ignored=ignored, export=export), root, tmp_path / "work") == []
