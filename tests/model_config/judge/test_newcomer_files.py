"""From a model's file and its data to PASS with the task for any model: `teco new --ckpt` writes all of it.

The user writes no line: flags of `teco new` name the file, the data and the metric. A float16 run passes the gate, and
a change of 0.95 % of the metric fails it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged_case import JudgedCase
from newcomer_models import KINDS

from model_config.cases.config import load_cases
from model_config.results import Verdict
from model_config.structure import check_structure
from toolkit.commands.new import main
from utils.tasks.arrays.task import Arrays

pytestmark = pytest.mark.slow


def new_model(kind: str, folder: Path, root: Path) -> None:
    """Run `teco new` for the file and the data of a folder."""
    defaults = [word for one in KINDS[kind].metrics for word in ("--default", f"metric={one}")]
    data = ["--data", str(folder / "val.npz")]
    assert main(["arrays", kind, "--ckpt", str(folder / "model.onnx"), *data, *defaults], root) == 0


class Scaled(Arrays):
    """Computes the last output 10 % too large on the card, as a faulty engine does."""

    def decode(self, outputs: Any, contexts: Any) -> Any:
        factor = np.float32(1.1 if self.options.target == "sdaa" else 1)
        rows = super().decode(outputs, contexts)
        return [{**row, name: row[name] * factor} for row in rows for name in [list(row)[-1]]]


@pytest.mark.parametrize("kind", KINDS)
def test_random_samples_pass_and_a_fault_of_the_target_fails(kind: str, tmp_path: Path) -> None:
    """Without data and without a metric: the outputs on the card equal those of target onnx within 5 %."""
    source, root = tmp_path / "source", tmp_path / "project"
    source.mkdir()
    root.mkdir()
    KINDS[kind].write(source)
    assert main(["any", kind, "--ckpt", str(source / "model.onnx"), "--default", "random=24"], root) == 0
    (case,) = load_cases([root / "model_config/model.yaml"], root)
    assert [str(found) for found in check_structure(case, root)] == []
    judged = JudgedCase(case, tmp_path / "zoo", root / case.run_dir)
    found = judged.judge().accuracy[0]
    assert (found.verdict, found.metric_name, found.metric, found.units) == (Verdict.PASS, "equal", 1, 24), found.reason

    judged.task = lambda task: Scaled
    found = judged.judge().accuracy[0]
    assert (found.verdict, found.metric, found.reference) == (Verdict.FAIL, 0, 1), found.reason


@pytest.mark.parametrize("kind", KINDS)
def test_float16_passes_and_a_planted_change_fails(kind: str, tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "project"
    source.mkdir()
    root.mkdir()
    plant = KINDS[kind].write(source)
    new_model(kind, source, root)
    (case,) = load_cases([root / "model_config/model.yaml"], root)
    assert [str(found) for found in check_structure(case, root)] == []
    judged = JudgedCase(case, tmp_path / "zoo", root / case.run_dir)

    result = judged.judge()
    found = result.accuracy[0]
    assert (result.verdict, result.notes) == (Verdict.PASS, ()), found.reason
    assert found.metric_name.endswith(KINDS[kind].metrics[0].rpartition("=")[2])
    if KINDS[kind].discrete:
        assert (found.differing, found.metric) == (0, found.reference)
        assert 0.85 < found.reference < 0.95
    else:
        assert found.differing == found.units, "float16 was computed"
        assert abs(found.relative_difference) < 0.001

    plant(judged)
    found = judged.judge().accuracy[0]
    assert found.verdict is Verdict.FAIL, found.reason
    assert 0.005 < abs(found.relative_difference) < 0.015, found.reason
