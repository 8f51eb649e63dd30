"""Tests that a step of the zoo's scripts must write its result, and of deeply nested model folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from model_config.cases.config import STEPS, load_cases
from model_config.run.runner import Limits, StepResult, run_step
from model_config.run.workplace import workplace
from tecoinfer_modelzoo.trees import below, remove_tree

PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}
LINES = (
    "print('eval_metric 0.75')\n"
    "print('summary: avg_sps: 9.5, e2e_time: 1, avg_inference_time: 1, avg_preprocess_time: 1, avg_postprocess: 1')\n"
)
ZOO = "import argparse, json, os, sys\nfrom pathlib import Path\nfrom utils.pipeline import cli\n"
WRITES = (
    ZOO + "p = argparse.ArgumentParser()\np.add_argument('--json', type=Path)\nresult = p.parse_known_args()[0].json\n"
)


def steps_of(root: Path, work: Path, **scripts: str) -> dict[str, StepResult]:
    """Run an artificial case of one folder, and return the results of its steps."""
    folder = root / "example/x/odd"
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        (folder / f"{step}.py").write_text(scripts.get(step, LINES if step == "valid" else ""))
    case = {"case_name": "odd", "run_dir": "TecoInference/example/x/odd"}
    case |= {key: {"run_file": f"{step}.py", "params": PARAMS} for step, key in STEPS.items()}
    case["run_export"] = {"run_file": "export.py"}
    (root / "model_config").mkdir(exist_ok=True)
    (root / "model_config/model.yaml").write_text(yaml.safe_dump([case]))
    work.mkdir()
    (loaded,) = load_cases([root / "model_config/model.yaml"], root)
    with workplace(loaded, work, root) as tree:
        found = [run_step(loaded, step, tree, work / "logs", Limits(60.0)) for step in loaded.steps]
    return {result.step: result for result in found}


def test_exit_codes_0_and_1_without_result_fail(tmp_path: Path) -> None:
    found = steps_of(
        tmp_path / "repo",
        tmp_path / "work",
        valid=ZOO + LINES + "sys.stdout.flush()\nos._exit(0)\n",
        single=ZOO + "sys.exit(0)\n",
        multi=ZOO + "this is invalid Python\n",
    )
    assert {name: (step.passed, step.exit_code) for name, step in found.items()} == {
        "export": (True, 0),
        "valid": (False, 0),
        "single": (False, 0),
        "multi": (False, 1),
    }
    for name in ("valid", "single", "multi"):
        assert "--json" in found[name].reason
    assert "SyntaxError" in found["multi"].reason


def test_records_of_another_run_are_a_failure(tmp_path: Path) -> None:
    result = "{'records': 'valid.samples.csv', 'records_sha256': SHA}"
    write = (
        WRITES + LINES + "import hashlib\nrecords = result.with_name('valid.samples.csv')\nrecords.write_text('x')\n"
    )
    wrong, right = "'0' * 64", "hashlib.sha256(b'x').hexdigest()"
    for number, (sha, passed) in enumerate(((wrong, False), (right, True))):
        script = write + f"result.write_text(json.dumps({result.replace('SHA', sha)}))\n"
        found = steps_of(tmp_path / "repo", tmp_path / f"work{number}", valid=script)
        assert found["valid"].passed == passed, found["valid"].reason
        assert ("valid.samples.csv" in found["valid"].reason) != passed


@pytest.mark.slow
def test_a_model_folder_of_900_levels(tmp_path: Path) -> None:
    at = tmp_path / "repo/example/x/odd"
    at.mkdir(parents=True)
    for _ in range(900):
        at = at / "d"
        at.mkdir()
    (at / "weights.onnx").write_text("")
    look = "import os\nassert os.path.isfile('d/' * 900 + 'weights.onnx')\n"
    try:
        found = steps_of(tmp_path / "repo", tmp_path / "work", export=look, valid=LINES)
        assert {name: step.reason for name, step in found.items()} == dict.fromkeys(STEPS, "")
        assert [os.path.basename(path) for path in below(tmp_path / "work") if "d/d/d" in str(path)] == []
    finally:
        remove_tree(tmp_path / "repo")
        remove_tree(tmp_path / "work")
