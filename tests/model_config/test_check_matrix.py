"""Tests of one check over many models, each with one violation: all are found with the right message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from stub_model import SAMPLES, Change, Stub, store_scorecard, write_zoo

from model_config.check import main
from model_config.results import SCHEMA_VERSION

Breakages = dict[str, tuple[Change, str, str]]
"""Model name -> violation, part that detects it, and a regular expression for the reasons."""


def drop(name: str) -> Change:
    return lambda stub: stub.files.update({name: None})


def put(name: str, content: str | bytes) -> Change:
    return lambda stub: stub.files.update({name: content})


def edit(name: str, old: str, new: str) -> Change:
    return lambda stub: stub.script(name, old, new)


def valid(body: str) -> Change:
    return lambda stub: stub.valid(body)


def case(**changes: Any) -> Change:
    return lambda stub: stub.case.update(changes)


def params(**changes: Any) -> Change:
    def change(stub: Stub) -> None:
        stub.case["run_example_valid"]["params"] = stub.case["run_example_valid"]["params"] | changes

    return change


def answers(**changes: Any) -> Change:
    return lambda stub: stub.answers.update(changes)


def wrong(count: int, seed: int = 10) -> Change:
    return lambda stub: stub.answers["wrong"].update({"sdaa": [1, 2, 3, *range(seed, seed + count)]})


STRUCTURE: Breakages = {
    "no_readme": (drop("README.md"), "structure", "README.md: required-files"),
    "no_requirements": (drop("requirements.txt"), "structure", "requirements.txt: required-files"),
    "heading_gone": (edit("README.md", "### 2.4 获取数据集\n", ""), "structure", "readme-headings: .*2.4"),
    "heading_english": (edit("README.md", "1. 模型概述", "1. Overview"), "structure", "readme-headings"),
    "section_empty": (edit("README.md", "It lies in `data`.", ""), "structure", "readme-text"),
    "bad_requirement": (put("requirements.txt", "numpy=>1\n"), "structure", "requirements-lines: .*numpy=>1"),
    "absolute_path": (
        edit("example_valid.py", "def main", 'DATA = "/home/me/data"\n\n\ndef main'),
        "structure",
        "absolute-path",
    ),
    "breakpoint": (
        edit("example_valid.py", "    Path(opt", "    if 0:\n        breakpoint()\n    Path(opt"),
        "structure",
        "debug",
    ),
    "eval": (edit("example_valid.py", "    Path(opt", '    eval("1")\n    Path(opt'), "structure", "unsafe: .*eval"),
    "no_tls": (put("get.py", 'import requests\n\nrequests.get("https://x.org/a", verify=False)\n'), "structure", "tls"),
    "syntax": (put("helper.py", "def broken(:\n"), "structure", "syntax"),
    "crlf": (put("helper.py", b"A = 1\r\n"), "structure", "text"),
    "weights": (put("weights.pth", b"0" * 2_000_001), "structure", "weights.pth: size"),
    "own_engine": (
        edit("example_valid.py", "import json\n", "import json\nimport onnxruntime\n"),
        "structure",
        "engine",
    ),
    "unknown_flag": (params(others={"top_k": 5}), "structure", "yaml-flags: .*top_k"),
}

CONFIGURATION: Breakages = {
    "key_missing": (lambda stub: stub.case["run_example_single"].pop("run_file"), "structure", "run_file.*missing"),
    "key_empty": (params(ckpt=""), "structure", "ckpt.*empty"),
    "key_unknown": (case(run_exemple_valid={}), "structure", "run_exemple_valid.*did you mean"),
    "batch_text": (params(batch_size="64"), "structure", "batch_size.*'64'"),
    "batch_zero": (params(batch_size=0), "structure", "batch_size"),
    "dtype_unknown": (params(dtype="float61"), "structure", "dtype.*float61"),
    "target_null": (params(target=None), "structure", "target"),
    "outside": (case(run_dir="../../elsewhere"), "structure", "run_dir"),
    "ckpt_outside": (params(ckpt="../../stub.onnx"), "structure", "ckpt"),
    "script_gone": (drop("example_multi_batch.py"), "structure", "example_multi_batch.py"),
    "params_list": (lambda s: s.case["run_example_valid"].update(params=["ckpt"]), "structure", "params"),
    "tolerance_text": (case(accuracy={"tolerance": "small"}), "structure", "accuracy.tolerance"),
}

LEAVES_ONE = """\
    import subprocess

    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
"""


def leaves_one(stub: Stub) -> None:
    stub.script("example_multi_batch.py", '    print("s', LEAVES_ONE + '    print("s')


FUNCTION: Breakages = {
    "export_fails": (
        edit("export_onnx.py", "    Path(", '    raise SystemExit("no weights")\n    Path('),
        "function",
        "export: exit code 1: no weights",
    ),
    "export_makes_nothing": (edit("export_onnx.py", '"stub.onnx"', '"other.onnx"'), "function", "valid: .*stub.onnx"),
    "import_missing": (
        edit("example_multi_batch.py", "import sys", "import sys\nimport not_there"),
        "function",
        "multi: .*not_there",
    ),
    "single_fails": (
        edit("example_single_batch.py", '    print("s', '    raise SystemExit(3)\n    print("s'),
        "function",
        "single: exit code 3",
    ),
    "hangs": (valid("    import time\n    time.sleep(60)"), "function", "valid: timed out after"),
    "eats_memory": (
        valid("    held = bytearray(1500 * 2**20)\n    held[::4096] = b'x' * len(held[::4096])"),
        "function",
        "valid: used .* of memory",
    ),
    "prints_megabytes": (
        valid('    for _ in range(200):\n        print("x" * 100_000)'),
        "function",
        "valid: .*output|valid: .*printed",
    ),
    "leaves_a_process": (
        leaves_one,
        "function",
        "multi: left processes behind",
    ),
    "killed": (valid("    import os\n    os.abort()"), "function", "valid: killed by SIGABRT"),
    "no_metric": (
        edit("example_valid.py", '    print(f"eval_metric {metric:.6f}")\n', ""),
        "function",
        "no line that starts with 'eval_metric'",
    ),
    "two_metrics": (
        edit("example_valid.py", "    print(f", '    print("eval_metric 0.5")\n    print(f'),
        "function",
        "2 lines that start with 'eval_metric'",
    ),
    "nan_metric": (edit("example_valid.py", "{metric:.6f}", "nan"), "function", "eval_metric nan is not a finite"),
    "no_summary": (
        edit("example_valid.py", "summary: avg", "sum: avg"),
        "function",
        "no line that starts with 'summary:'",
    ),
    "more_output": (valid('    print("done")'), "function", "'done' after its closing lines"),
}


def reference_run(stub: Stub) -> None:
    stub.case["accuracy"] = {"run_reference": {"run_file": "source.py"}, "reference_source": "PyTorch"}
    lines = "print('eval_metric 0.9')\nprint('summary: avg_sps: 1, e2e_time: 1, avg_inference_time: 1, "
    stub.files["source.py"] = lines + "avg_preprocess_time: 1, avg_postprocess: 1')\n"


ACCURACY: Breakages = {
    "drops": (wrong(60), "accuracy", "top1 .*worse"),
    "rises": (lambda s: s.answers["wrong"].update(onnx=list(range(1, 70))), "accuracy", "better"),
    "slightly_worse": (wrong(12), "accuracy", "worse"),
    "unread": (lambda s: s.answers["unread"].update(sdaa=[7]), "accuracy", "n7"),
    "baseline_fails": (lambda s: s.answers["wrong"].pop("onnx"), "accuracy", "onnx float32 could not be run"),
    "reference": (case(accuracy={"reference": 0.9, "reference_source": "paper"}), "accuracy", "paper"),
    "reference_run": (reference_run, "accuracy", "of PyTorch: .*better"),
    "reference_run_fails": (
        case(accuracy={"run_reference": {"run_file": "export_onnx.py"}}),
        "accuracy",
        "source framework could not be run: .*no line",
    ),
    "odd_json": (
        valid('    if opt.json:\n        opt.json.write_text("[]")'),
        "accuracy",
        "cannot be compared .*--json file has no 'metric'",
    ),
    "other_data": (
        edit("example_valid.py", "    count = ", '    answers["names"] += opt.target\n    count = '),
        "accuracy",
        "not of the same samples",
    ),
}

SPEED: Breakages = {
    "simulated_slower": (answers(simulated_sps=800.0), "speed", "simulated time per sample: .*1.250 times"),
    "host_slower": (answers(sps=0.01), "speed", "host time .* in the best of 3 runs"),
    "edited_scorecard": (lambda stub: None, "structure", "numerics.yaml.*edited manually"),
    "broken_scorecard": (lambda stub: None, "structure", "perf.yaml.*cannot be read"),
    "other_metric": (lambda stub: None, "structure", "numerics.yaml.*says top1 0.9 .*found 0.9995"),
}

BREAKAGES = STRUCTURE | CONFIGURATION | FUNCTION | ACCURACY | SPEED
ELSEWHERE = {"unknown_flag": ["function"], "baseline_fails": ["function"], "reference_run_fails": ["function"]}
"""Violations that a second part detects as well."""


def store(file: Path, root: Path) -> None:
    """Write the scorecards for the violations of speed."""
    stored = {
        "simulated_s": 0.001,
        "host_s": 0.1,
        "kernel_s": 0.02,
    }  # ten times slower: no noise of this machine matters
    for name in ("good", "simulated_slower", "host_slower"):
        store_scorecard(file, root, name, speed=stored)
    store_scorecard(file, root, "other_metric", metric=0.9)
    numerics = store_scorecard(file, root, "edited_scorecard") / "numerics.yaml"
    numerics.write_text(numerics.read_text().replace("0.9995", "0.9999"))
    (store_scorecard(file, root, "broken_scorecard", speed=stored) / "perf.yaml").write_text("figures: [")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Check all of them at once."""
    root, out = tmp_path_factory.mktemp("zoo"), tmp_path_factory.mktemp("out")
    changes: dict[str, Change] = {"good": lambda stub: None}
    changes |= {name: change for name, (change, _, _) in BREAKAGES.items()}
    file = write_zoo(root, changes)
    store(file, root)
    argv = ["--json", str(out / "out.json"), "--work-dir", str(out / "work"), "--no-cache"]
    code = main([*argv, "--timeout", "15", "--memory", "1"], root=root)
    found: dict[str, Any] = json.loads((out / "out.json").read_text())
    assert code == 1
    return found


def test_at_least_forty_violations() -> None:
    assert len(BREAKAGES) >= 40
    assert SAMPLES > 3700  # required by a strict gate of 0.1 % if no prediction differs


@pytest.mark.slow
@pytest.mark.long
def test_valid_model_passes(report: dict[str, Any]) -> None:
    (good,) = [found for found in report["cases"] if found["case"] == "good"]
    assert good["reasons"] == []
    assert good["verdict"] == "PASS"
    assert good["parts"] == dict.fromkeys(("structure", "function", "accuracy", "speed"), "PASS")
    assert report["schema_version"] == SCHEMA_VERSION
    assert report["problems"] == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", BREAKAGES)
def test_every_violation_is_found(name: str, report: dict[str, Any]) -> None:
    _, part, words = BREAKAGES[name]
    (found,) = [found for found in report["cases"] if found["case"] == name]
    assert found["parts"][part] == "FAIL", found["reasons"]
    assert found["verdict"] == "FAIL"
    assert any(re.search(words, reason) for reason in found["reasons"]), found["reasons"]
    others = [one for one, judged in found["parts"].items() if judged == "FAIL" and one != part]
    assert others == ELSEWHERE.get(name, []), found["reasons"]
    assert all("\n" not in reason for reason in found["reasons"])


@pytest.mark.slow
@pytest.mark.long
def test_no_processes_remain(report: dict[str, Any]) -> None:
    work, left = str(Path(report["logs"]).parent), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "cwd").readlink()).startswith(work):
                left.append((entry / "cmdline").read_bytes())
        except OSError:  # it has ended, or belongs to another user
            continue
    assert left == []
