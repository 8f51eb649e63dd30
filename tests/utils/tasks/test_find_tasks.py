"""Tasks are found on the package's path, in contrib, and by entry points; what cannot be loaded is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ROOT, RunPython

from engine import ConfigError
from utils.tasks.base import Task, task_class
from utils.tasks.ctr_prediction.task import CTR_PREDICTION, CtrPrediction
from utils.tasks.find import default_of, find_task, tasks

MINE = "from dataclasses import replace\nfrom utils.tasks.ctr_prediction.task import CTR_PREDICTION\n"
MINE += "MINE = replace(CTR_PREDICTION, name='mine', domain='mining')\n"
"""A task of the zoo's own, changed in the form before."""
DERIVED = "from utils.tasks.ctr_prediction.task import CTR_PREDICTION, CtrPrediction\n"
DERIVED += "class Mine(CtrPrediction):\n    name, domain = 'mine', 'mining'\n"
LIST = "from utils.tasks.find import add_contrib, tasks\nfrom pathlib import Path\nimport sys\n"
LIST += "add_contrib(Path(sys.argv[1]))\nprint(sorted(tasks()))\n"


def test_tasks_of_the_zoo() -> None:
    assert all(issubclass(task, Task) and task.name == name for name, task in tasks().items())
    assert tasks()["ctr_prediction"] is find_task("ctr_prediction") is CtrPrediction
    assert task_class(CTR_PREDICTION) is CtrPrediction


def test_an_unknown_task() -> None:
    with pytest.raises(ConfigError, match="unknown task 'clasification'; did you mean 'classification'") as caught:
        find_task("clasification")
    assert "tasks: " in str(caught.value)


def test_each_domain_has_a_default_task_with_a_template() -> None:
    known = tasks()
    found = {domain: find_task(domain) for domain in sorted({task.domain for task in known.values()})}
    assert all(task.template is not None for task in found.values())
    assert (found["nlp"].name, found["speech"].name) == ("text_classification", "speech_recognition")


def test_the_default_task_of_a_domain() -> None:
    def task(name: str, **words: Any) -> type[Task]:
        return type(name, (CtrPrediction,), {"name": name, "domain": "mining", "domain_default": False, **words})

    first, other = task("dig", domain_default=True), task("sift")
    assert default_of("mining", {"sift": other}) is other
    assert default_of("mining", {"sift": other, "dig": first}) is first
    assert default_of("mining", {"a": other, "b": task("b")}) is None
    assert default_of("mining", {"a": first, "b": task("b", domain_default=True)}) is None


def contribute(root: Path, code: str) -> Path:
    folder = root / "contrib" / "utils" / "tasks"
    folder.mkdir(parents=True)
    line = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text(line)
    (folder / "mine.py").write_text(code)
    return root


@pytest.mark.parametrize("code", [MINE, DERIVED])
def test_contrib_adds_some(tmp_path: Path, run_python: RunPython, code: str) -> None:
    done = run_python("-c", LIST, contribute(tmp_path, code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'mine'" in done.stdout
    assert done.stdout.count("'ctr_prediction'") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import nothing_of_this_name", "utils/tasks/mine.py cannot be imported: ModuleNotFoundError"),
        (MINE.replace("'mine'", "'ctr_prediction'"), "there already is a task 'ctr_prediction'"),
        (DERIVED.replace("'mine'", "'ctr_prediction'"), "there already is a task 'ctr_prediction'"),
        ("raise SystemExit(3)", "utils/tasks/mine.py cannot be imported: SystemExit: 3; correct the file"),
        (MINE.replace("'mine'", "'Mine it'"), "the name 'Mine it' of a task must start with a lower-case letter"),
    ],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, run_python: RunPython, code: str, text: str) -> None:
    done = run_python("-c", LIST, contribute(tmp_path, code), cwd=tmp_path)
    assert done.returncode == 1
    assert text in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("value", "text"), [("mine:MINE", ""), ("mine:x", "is not a utils.tasks.Task"), ("no:x", "cannot be")]
)
def test_entry_points(tmp_path: Path, run_python: RunPython, value: str, text: str) -> None:
    (tmp_path / "mine.py").write_text(MINE + "x = 1\n")
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tecoinfer.tasks]\nmine = {value}\n")
    done = run_python("-c", LIST, tmp_path, cwd=tmp_path, path=[ROOT, tmp_path])
    if text:
        assert "task 'mine' of mine" in done.stderr.splitlines()[-1]
        assert text in done.stderr.splitlines()[-1]
    else:
        assert "'mine'" in done.stdout, done.stderr
