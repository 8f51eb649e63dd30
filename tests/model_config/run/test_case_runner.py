"""Tests of running cases: real processes on small artificial models, and on the digits example."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine import ConfigError
from model_config.cases.config import ROOT, STEPS, Case, load_cases
from model_config.run.runner import Limits, StepResult, run_step
from model_config.run.workplace import workplace

PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}
SUMMARY = (
    "summary: avg_sps: 9.5, e2e_time: 1, avg_inference_time: 1e-05, avg_preprocess_time: 0.1, avg_postprocess: 0.0"
)
CLOSING = f"print('eval_metric 0.75')\nprint({SUMMARY!r})\n"
EXPORT = "from pathlib import Path\nPath('m.onnx').write_text('made')\n"
NEEDS_CKPT = "import sys\nfrom pathlib import Path\nPath(sys.argv[2]).read_text()\n"
GOOD = {"export": EXPORT, "valid": NEEDS_CKPT + CLOSING, "single": NEEDS_CKPT, "multi": NEEDS_CKPT}


def run_steps(case: Case, work: Path, root: Path = ROOT, timeout: float = 300.0) -> list[StepResult]:
    with workplace(case, work, root) as tree:
        return [run_step(case, step, tree, work / "logs" / case.name, Limits(timeout)) for step in case.steps]


class Repo:
    """A temporary repository; each model has four scripts and a case."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cases: list[dict[str, Any]] = []

    def add(self, name: str, folder: str = "example/x", **scripts: str) -> Path:
        run_dir = self.root / folder / name
        run_dir.mkdir(parents=True)
        for step, text in (GOOD | scripts).items():
            (run_dir / f"{step}.py").write_text(text)
        steps = {key: {"run_file": f"{step}.py", "params": PARAMS} for step, key in STEPS.items()}
        steps["run_export"] = {"run_file": "export.py"}
        self.cases.append({"case_name": name, "run_dir": f"TecoInference/{folder}/{name}", **steps})
        (self.root / "model_config").mkdir(exist_ok=True)
        (self.root / "model_config/model.yaml").write_text(yaml.safe_dump(self.cases))
        return run_dir

    def run(self, work: Path, timeout: float = 30.0) -> dict[str, StepResult]:
        found = {}
        for case in load_cases([self.root / "model_config/model.yaml"], self.root):
            for result in run_steps(case, work, self.root, timeout):
                found[f"{result.case} {result.step}"] = result
        return found

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_valid_case_passes_without_changing_checkout(repo: Repo, work: Path) -> None:
    repo.add("good")
    before = repo.files()
    results = repo.run(work)
    assert [result.reason for result in results.values()] == ["", "", "", ""]
    assert all(result.passed and result.exit_code == 0 for result in results.values())
    assert [result.eval_metric for result in results.values()] == [None, 0.75, None, None]
    assert repo.files() == before
    assert [path.name for path in work.iterdir()] == ["logs"]
    assert results["good valid"].stdout.read_text().endswith(SUMMARY + "\n")


@pytest.mark.slow
def test_later_steps_run_after_failure(repo: Repo, work: Path) -> None:
    repo.add("bad", export="import not_installed\n")
    repo.add("good")
    results = repo.run(work)
    assert [result.passed for result in results.values()] == [False] * 4 + [True] * 4
    assert results["bad export"].reason == "exit code 1: ModuleNotFoundError: No module named 'not_installed'"
    assert "No such file or directory: 'm.onnx'" in results["bad single"].reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected", "metric"),
    [
        ("", "no line that starts with 'eval_metric'; print", None),
        ("print('best eval_metric 0.5')", "no line that starts with 'eval_metric'; print", None),
        ("print('eval_metric 0.5')", "no line that starts with 'summary:'; print", None),
        (CLOSING + "print('more')", "'more' after its closing lines; print", None),
        (CLOSING.replace("\n", "\nprint('more')\n", 1), "'more' between its closing lines; print", None),
        ("\n".join(reversed(CLOSING.split("\n"))), "'summary:' before 'eval_metric'; print", None),
        ("print('eval_metric 0.7')\n" + CLOSING, "2 lines that start with 'eval_metric' ('eval_metric 0.7', ", None),
        (CLOSING + CLOSING.split("\n")[1], "2 lines that start with 'summary:'", None),
        (CLOSING.replace("0.75", "high"), "'eval_metric high' is not 'eval_metric <number>'; print", None),
        (CLOSING.replace("avg_inference_time: 1e-05, ", ""), "does not hold a number for each of avg_sps, e2e_", None),
        (CLOSING.replace("0.75", "nan"), "eval_metric nan is not a finite number; check", None),
        (CLOSING.replace("0.75", "-inf"), "eval_metric -inf is not a finite number; check", None),
        (CLOSING + "raise SystemExit('two samples could not be run')", "exit code 1: two samples could", 0.75),
        (CLOSING + "import os; os.abort()", "killed by SIGABRT", 0.75),
        (CLOSING.replace("avg_postprocess: 0.0", "avg_postprocess: 0.0, simulated_time: 3"), "", 0.75),
        ("print('before')\n" + CLOSING + "print('late warning', file=__import__('sys').stderr)", "", 0.75),
    ],
)
def test_valid_passes_only_with_its_two_closing_lines(
    repo: Repo, work: Path, script: str, expected: str, metric: float | None
) -> None:
    repo.add("m", valid=script)
    result = repo.run(work)["m valid"]
    assert result.passed == (expected == "")
    assert expected in result.reason
    assert result.eval_metric == metric


SLEEPER = """import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid)
time.sleep(60)
"""


def gone(pid: int) -> bool:
    """Return whether a process ends within twenty seconds; a zombie counts as ended."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_killed_with_its_children(repo: Repo, work: Path) -> None:
    repo.add("slow", single=SLEEPER)
    results = repo.run(work, timeout=2.0)
    result = results["slow single"]
    assert result.reason == "timed out after 2 s and was killed with its child processes; make it faster"
    assert result.exit_code is None
    assert 2.0 <= result.seconds < 45.0  # not waited for: it sleeps 60 s
    assert gone(int(result.stdout.read_text().split()[1]))
    assert results["slow multi"].passed


def test_scripts_find_the_repository_above_them_and_its_engine_from_contrib(repo: Repo, work: Path) -> None:
    script = (
        "import engine, sys\nfrom pathlib import Path\nroot = Path(__file__).resolve().parents[3]\n"
        "assert Path('shared.txt').read_text() == 'outside'\nassert Path('../other/export.py').is_file()\n"
        "print(root, (root / 'engine').exists(), engine.WHERE)\n"
    )
    outside = work.parent / "outside.txt"
    outside.write_text("outside")
    for folder, name in (("example/x", "core"), ("contrib/example/x", "contributed")):
        (repo.add(name, folder, single=script) / "shared.txt").symlink_to(outside)
        if not (repo.root / folder / "other").exists():
            repo.add("other", folder)
            repo.cases.pop()
            (repo.root / "model_config/model.yaml").write_text(yaml.safe_dump(repo.cases))
    (repo.root / "tecoinfer_modelzoo").mkdir()  # as in a clone
    (repo.root / "engine").mkdir()
    (repo.root / "engine/__init__.py").write_text("WHERE = 'repo'\n")
    results = repo.run(work)
    assert [results[f"{name} single"].reason for name in ("core", "contributed")] == ["", ""]
    root, found, where = results["core single"].stdout.read_text().split()
    assert Path(root).parent == work
    assert (found, where) == ("True", "repo")
    assert results["contributed single"].stdout.read_text().split()[1:] == ["False", "repo"]
    assert not (repo.root / "engine/__pycache__").exists()


def test_a_checkpoint_git_ignores_must_come_from_the_export(repo: Repo, work: Path) -> None:
    for name in ("ignored", "committed"):
        (repo.add(name, export="") / "m.onnx").write_text("left over")
    subprocess.run(["git", "init", "-q", str(repo.root)], check=True)  # noqa: S607
    (repo.root / ".gitignore").write_text("/example/x/ignored/*.onnx\n")
    results = repo.run(work)
    assert [results[f"{name} single"].passed for name in ("ignored", "committed")] == [False, True]


def test_a_folder_that_cannot_be_copied_is_refused(repo: Repo, work: Path) -> None:
    os.mkfifo(repo.add("odd") / "pipe")
    with pytest.raises(ConfigError, match=r"cannot be copied.*named pipe"):
        repo.run(work)
    assert list(work.iterdir()) == []


def test_a_step_reads_no_input_and_gets_no_shell(repo: Repo, work: Path) -> None:
    repo.add("m", single="import sys\nassert sys.stdin.read() == ''\nprint(sys.argv)\n")
    repo.cases[0]["run_example_single"] = {
        "run_file": "single.py", "params": PARAMS | {"data_path": "a b; touch $HOME `x` *"},
    }  # fmt: skip
    (repo.root / "model_config/model.yaml").write_text(yaml.safe_dump(repo.cases))
    result = repo.run(work)["m single"]
    assert result.passed
    assert "'a b; touch $HOME `x` *'" in result.stdout.read_text()


@pytest.mark.long
@pytest.mark.slow
def test_the_digits_case_runs_without_its_export(tmp_path: Path) -> None:
    """The committed checkpoints suffice; the metric is that of the trained network."""
    (case,) = [case for case in load_cases([ROOT / "model_config/model.yaml"]) if case.name == "digits"]
    steps = {step.name: step for step in case.steps}
    inference = type(case)(
        case.name, case.run_dir, tuple(steps[name] for name in ("valid", "single", "multi")), case.source
    )
    results = run_steps(inference, tmp_path)
    assert [result.reason for result in results] == ["", "", ""]
    assert results[0].eval_metric is not None
    assert results[0].eval_metric >= 0.98
