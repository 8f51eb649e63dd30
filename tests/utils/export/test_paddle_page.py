"""The PaddlePaddle section of ``docs/how-to/adding_a_model.md``, in the environment of PaddlePaddle."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import DIGITS, ROOT
from walkthrough import actions, change, follow
from zoo_copy import with_teco

pytest.importorskip("paddle", reason="PaddlePaddle has an environment of its own (constraints-paddle.txt)")
pytest.importorskip("paddle2onnx")

PAGE = (ROOT / "docs" / "how-to" / "adding_a_model.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    found = re.search(rf"^## {number}\. [^\n]+\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_paddle_model_is_exported_and_evaluated(tmp_path: Path) -> None:
    """Without scikit-learn: three quarters of the zoo's 360 images are for training, the others for evaluation."""
    for place, image in enumerate(sorted((DIGITS / "data" / "val").glob("*/*.png"))):
        part = "val" if place % 4 == 0 or image.stem == "0081" else "train"
        (tmp_path / "digits" / part / image.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(image, tmp_path / "digits" / part / image.parent.name)
    for action in actions(section(1)):
        if action.kind == "file" and action.where.startswith("example_"):
            change(action, tmp_path)
    printed = follow(section(5), tmp_path, with_teco(ROOT, tmp_path / "bin"))
    source = float(re.findall(r"^accuracy (\S+) on ", printed, re.MULTILINE)[0])
    onnx, sdaa = map(float, re.findall(r"^eval_metric (\S+)$", printed, re.MULTILINE))
    assert source > 0.85
    assert onnx == pytest.approx(source, abs=1e-6)
    assert sdaa == pytest.approx(source, abs=0.02)
    assert re.search(r"^0081\.png +7 ", printed, re.MULTILINE)
