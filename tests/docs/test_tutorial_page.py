"""The tutorial's commands run in a fresh clone and virtual environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import Action, actions, shown

TUTORIAL = ROOT / "docs/tutorial/first_model.md"
PAGE = TUTORIAL.read_text(encoding="utf-8")


def test_the_tutorial_has_commands_in_every_step() -> None:
    steps = re.split(r"^## \d\. ", PAGE, flags=re.MULTILINE)[1:]
    assert len(steps) == 9
    assert all(any(one.kind == "bash" for one in actions(step)) for step in steps[:8])


def script(found: list[Action]) -> str:
    """Return all actions as one script of bash, as a reader types them into one terminal."""
    steps = []
    for action in found:
        assert action.kind in ("bash", "file"), action.kind
        assert "END_OF_FILE" not in action.text
        file = f"cat > {action.where} <<'END_OF_FILE'\n{action.text}END_OF_FILE\n"
        steps.append(file if action.kind == "file" else action.text)
    return "\n".join(steps)


def figures(text: str) -> dict[str, list[float]]:
    """Return the figures of the evaluations, of the training and of the first line of the adaptation, in order."""
    rows = {"eval_metric": r"^eval_metric (\S+)$", "accuracy": r"^accuracy (\S+) on", "top1": r"onnx +top1 (\S+) on"}
    return {name: list(map(float, re.findall(row, text, re.MULTILINE))) for name, row in rows.items()}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_the_commands_run_in_a_fresh_clone_and_environment(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    clone = tmp_path / "clone"
    subprocess.run([git, "clone", "-q", str(ROOT), str(clone)], check=True)
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", script(list(actions(PAGE)))]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    pages, ours = (figures(text) for text in ("\n".join(shown(PAGE, "text")), done.stdout))
    assert ours["eval_metric"][:2] == pytest.approx(pages["eval_metric"][:2], abs=0.001)  # a trained model, two targets
    assert ours["accuracy"] == ours["top1"]  # of the training, and of the zoo on target onnx
    assert ours["accuracy"][0] > ours["eval_metric"][2] + 0.02  # without the notes
    assert "PASS: teco check textures" in done.stdout
    assert re.search(r"^textures +sdaa +PASS +PASS +PASS", done.stdout, re.MULTILINE)
    assert (clone / "contrib/example/classification/textures/README.md").is_file()
