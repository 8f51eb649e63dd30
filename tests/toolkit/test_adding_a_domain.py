"""docs/how-to/adding_a_domain.md works in a copy of the zoo and ends with a passed check; and common mistakes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change, follow, shown
from zoo_copy import copy_zoo, with_teco

from model_config.cases.config import read_cases
from model_config.structure import check_shared, check_structure

PAGE = (ROOT / "docs" / "how-to" / "adding_a_domain.md").read_text(encoding="utf-8")
CHAPTERS = re.split(r"^(?=## \d\. )", PAGE, flags=re.MULTILINE)
THE_TASK = "".join(CHAPTERS[:6])
"""All that makes the task, its template included."""

MODEL, TEMPLATE = "contrib/example/forecasting/co2_nlinear", "contrib/utils/tasks/templates/forecasting"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy with the page's task and template; tests restore their changes."""
    made = copy_zoo(tmp_path_factory.mktemp("domain") / "zoo")
    follow(THE_TASK, made, with_teco(made, made.parent / "bin"))
    return made


def teco(zoo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run teco of a copy in a separate process, since it adds the copy's contrib to the path."""
    environment = with_teco(zoo, zoo.parent / "bin")
    command = [sys.executable, "-m", "toolkit.cli", *words]
    return subprocess.run(command, cwd=zoo, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.long
def test_page_ends_with_passed_check(tmp_path: Path) -> None:
    pytest.importorskip("statsmodels")
    zoo = copy_zoo(tmp_path / "zoo")
    environment = with_teco(zoo, zoo.parent / "bin")
    printed = ""
    for action in actions(PAGE):
        if action.kind == "bash":
            printed += bash(action.text, zoo, environment)
            if "--save drawn" in action.text:
                assert [file.name for file in sorted((zoo / MODEL / "drawn").iterdir())] == ["train.png", "val.png"]
        else:
            change(action, zoo)
    status = bash("git status --short", zoo, environment)
    changed = [line[3:] for line in status.splitlines() if line[1] != " "]
    assert [name for name in changed if not name.startswith("contrib/")] == [], "the core was edited"
    _the_page_shows_what_is_printed(printed)
    _the_metric_is_that_of_numpy(printed)
    _every_rule_holds(zoo)
    info = teco(zoo, "info", "co2_nlinear")
    assert "--horizon" in info.stdout  # the valid script's flags, by its task
    assert "(sdaa, lower is better)" in printed


def _the_page_shows_what_is_printed(printed: str) -> None:
    """Every line of a text block is printed, except for folders and the last digits."""
    lines = shown(PAGE, "text")
    assert len(lines) > 12
    for line in lines:
        if "..." in line:
            assert all(part in printed for part in line.split("...")), line
        elif "MASE" not in line:
            assert line in printed, line


def _the_metric_is_that_of_numpy(printed: str) -> None:
    """The placeholder has the metric of the naive forecast, and the fitted model that of numpy on every target."""
    fitted = re.search(r"MASE ([\d.]+), seasonal naive ([\d.]+) on 601", printed)
    assert fitted is not None
    metrics = [float(text) for text in re.findall(r"^eval_metric (\S+)$", printed, re.MULTILINE)]
    naive = [float(text) for text in re.findall(r"naive_mase ([\d.]+)", printed)]
    assert metrics[0] == pytest.approx(naive[0], rel=1e-4)
    assert metrics[1] == pytest.approx(float(fitted[1]), abs=2e-6)
    assert metrics[2:4] == pytest.approx([float(fitted[1])] * 2, rel=1e-3)
    assert naive[1] == pytest.approx(float(fitted[2]), rel=1e-5)
    message = re.findall(r"^\| .* \| (\d\.\d{6}) \|$", PAGE, re.MULTILINE)
    assert [float(one) for one in message[1:]] == pytest.approx([*metrics[1:4], float(fitted[2])], rel=1e-3)


def _every_rule_holds(zoo: Path) -> None:
    shared = [path.relative_to(zoo).as_posix() for path in (zoo / "contrib/utils").rglob("*.py")]
    assert check_shared(shared, zoo) == []
    cases, problems = read_cases([zoo / "contrib/model_config/model.yaml"], zoo)
    assert not problems
    (case,) = (case for case in cases if case.name == "co2_nlinear")
    assert check_structure(case, zoo) == []
    for command in (["check"], ["format", "--check"]):
        words = [sys.executable, "-m", "ruff", *command, "--no-cache", "contrib"]
        done = subprocess.run(words, cwd=zoo, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "No module named ruff" in done.stderr, done.stdout


def test_metric_of_page_by_hand(zoo: Path) -> None:
    code = """
import json
import numpy as np
from utils.metrics.mase import Mase, scale_of, seasonal_naive
history = np.array([1.0, 5.0, 2.0, 7.0])
metric = Mase(2)
print(json.dumps([scale_of(history, 2), seasonal_naive(history, 2, 3).tolist()]))
metric.update([np.array([2.0, 9.0, 5.0])], [np.array([3.0, 9.0, 1.0])], [history])
metric.update([np.array([0.0])], [np.array([4.5])], [history])
print(json.dumps([metric.compute(), metric.secondary()]))
"""
    environment = with_teco(zoo, zoo.parent / "bin")
    environment["PYTHONPATH"] += f":{zoo / 'contrib'}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    (scale, naive), (mase, beside) = map(json.loads, done.stdout.splitlines())
    assert (scale, naive) == (1.5, [2.0, 7.0, 2.0])  # (|2 - 1| + |7 - 5|) / 2
    assert mase == pytest.approx(((1 + 0 + 4) / 3 / 1.5 + 4.5 / 1.5) / 2)
    assert beside["naive_mase"] == pytest.approx(((1 + 2 + 1) / 3 / 1.5 + 2.5 / 1.5) / 2)
    assert beside["rmse"] == pytest.approx(math.sqrt(((1 + 0 + 16) / 3 + 4.5**2) / 2))


@pytest.mark.slow
@pytest.mark.long
def test_task_is_available_to_contrib_only(zoo: Path) -> None:
    done = teco(zoo, "new", "astronomy", "x", "--contrib")
    assert done.returncode == 2
    assert "domain 'astronomy' has no task" in done.stderr
    assert "classification (classification), " in done.stderr
    assert "forecasting (forecasting)" in done.stderr
    assert done.stderr.rstrip().endswith("choose one with --task NAME, or write one (docs/how-to/adding_a_domain.md)")
    done = teco(zoo, "new", "forecasting", "x")
    assert (
        done.stderr == "error: task 'forecasting' is in contrib/utils, which core models cannot import; add --contrib\n"
    )
    done = teco(zoo, "new", "astronomy", "x", "--task", "forecasting", "--contrib")
    assert done.returncode == 0, done.stderr
    assert (zoo / "contrib/example/astronomy/x/data/val.csv").is_file()
    assert teco(zoo, "_complete", "new", "foreca").stdout == "forecasting\n"
    assert teco(zoo, "_complete", "new", "forecasting", "x", "--task", "fo").stdout == "forecasting\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("model.py", "$sizes", "model.py.tmpl uses the variable 'sizes', "),
        ("model.py", "$ 5", "model.py.tmpl: Invalid placeholder in string: line 1, col 1; "),
        ("case.yaml", None, "templates/forecasting of task 'forecasting' has no case.yaml.tmpl; add it"),
        ("case.yaml", "- case_name: other\n", "cannot be appended to"),
    ],
)
def test_invalid_template_has_no_effect(zoo: Path, name: str, text: str | None, message: str) -> None:
    config, file = zoo / "contrib/model_config/model.yaml", zoo / f"{TEMPLATE}/{name}.tmpl"
    before = [config.read_bytes(), file.read_bytes()]
    try:
        file.unlink()
        if text is not None:
            file.write_text(text)
        done = teco(zoo, "new", "forecasting", "unmade", "--contrib")
    finally:
        file.write_bytes(before[1])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert message in done.stderr
    assert config.read_bytes() == before[0]
    assert not list((zoo / "contrib").rglob("*unmade*"))


@pytest.mark.slow
@pytest.mark.long
def test_failed_sample_data(zoo: Path) -> None:
    task = zoo / "contrib/utils/tasks/forecasting.py"
    right = task.read_text()
    try:
        task.write_text(right.replace("chance, steps = np.random.default_rng(seed)", "chance, steps = 1 / 0"))
        unmade = teco(zoo, "new", "forecasting", "unmade", "--contrib").stderr
        task.write_text(right.replace('return {"history"', 'return {"model": "x", "history"'))
        taken = teco(zoo, "new", "forecasting", "unmade", "--contrib").stderr
        task.write_text(right.replace('return {"history"', 'None and {"history"'))
        wordless = teco(zoo, "new", "forecasting", "unmade", "--contrib").stderr
        task.write_text("import nothing_like_it\n")
        unread = teco(zoo, "new", "classification", "unmade", "--contrib").stderr
    finally:
        task.write_text(right)
    assert "templates/forecasting failed: ZeroDivisionError: division by zero; " in unmade
    assert unmade.count("\n") == 1
    assert taken.endswith("templates/forecasting redefines the variable 'model'; rename it\n")
    assert wordless.endswith("returned None; it must return a dict\n")
    assert unread.startswith("error: utils/tasks/forecasting.py cannot be imported: ModuleNotFoundError: ")


def test_repository_is_unchanged() -> None:
    assert not list((ROOT / "contrib").rglob("*forecasting*"))
    assert shown(PAGE) == []  # what is shown says its language, which distinguishes it from commands
