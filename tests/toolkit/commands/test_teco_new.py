"""``teco new``: the new model passes structure and lint and runs; nothing is written on an error."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import RunPython
from zoo_copy import copy_zoo

from engine import ConfigError
from model_config.cases.config import Case, read_cases
from model_config.structure import check_structure
from model_config.structure.flags import known_flags
from model_config.structure.source import Folder, SourceFile
from toolkit.commands.new import main
from toolkit.scaffold import LONGEST, create
from toolkit.zoo import SCRIPTS, load_zoo
from utils.tasks.base import task_class
from utils.tasks.classification.task import CLASSIFICATION

CORE, CONTRIB = "model_config/model.yaml", "contrib/model_config/model.yaml"
LONG = "a" * LONGEST


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return copy_zoo(tmp_path / "zoo")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A zoo without the models and the code, of which none is read."""
    return copy_zoo(tmp_path / "zoo", ("contrib", "model_config", "tecoinfer_modelzoo"))


def tree(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if ".git" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in found}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("domain", "model", "task", "contrib"),
    [
        ("classification", "my_net", "", False),
        ("detection", "my_net", "", True),
        pytest.param("nlp", "my_net", "", False, marks=pytest.mark.slow),
        pytest.param(LONG, LONG, "classification", True, marks=pytest.mark.slow),
        (LONG, LONG, "detection", True),
        pytest.param("segmentation", "my_net", "", False, marks=pytest.mark.slow),
        pytest.param(LONG, LONG, "segmentation", True, marks=pytest.mark.slow),
        pytest.param(LONG, LONG, "face_verification", True, marks=pytest.mark.slow),
        pytest.param(LONG, LONG, "text_classification", True, marks=pytest.mark.slow),
        ("speech", "net2", "nlp", True),
    ],
)
def test_new_model_passes_structure_and_lint(domain: str, model: str, task: str, contrib: bool, zoo: Path) -> None:
    made = create(domain, model, task=task, contrib=contrib, root=zoo)
    folder = zoo / made.folder
    assert made.folder == f"{'contrib/' if contrib else ''}example/{domain}/{model}"
    cases, problems = read_cases([zoo / CORE, zoo / CONTRIB], zoo)
    assert not problems
    assert cases[-1].name == model
    assert cases[-1].run_dir == made.folder
    assert check_structure(cases[-1], zoo) == []
    assert made.files == len([path for path in folder.rglob("*") if path.is_file()])
    for command in (["check"], ["format", "--check"]):
        linted = subprocess.run([sys.executable, "-m", "ruff", *command, folder], capture_output=True, check=False)
        assert linted.returncode == 0, linted.stdout
    assert all(len(path.read_text().splitlines()) < 20 for path in folder.glob("example_*.py"))
    assert "A placeholder written by `teco new`" in (folder / "README.md").read_text(encoding="utf-8")
    assert known_flags(*_script(cases[-1], zoo)) is not None


def _script(case: Case, zoo: Path) -> tuple[SourceFile, Folder]:
    folder = Folder(case, zoo)
    source = folder.find("example_valid.py")
    assert source is not None
    return source, folder


@pytest.mark.slow
def test_file_of_cases_keeps_its_text(small: Path) -> None:
    before = [(small / name).read_text(encoding="utf-8") for name in (CORE, CONTRIB)]
    create("classification", "a", root=small)
    create("classification", "b", contrib=True, root=small)
    for name, text in zip((CORE, CONTRIB), before, strict=True):
        after = (small / name).read_text(encoding="utf-8")
        assert after.startswith(text)
        assert after[len(text) :].startswith("\n- case_name: ")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "# only a comment", "- {a: 1}"])
def test_file_without_final_newline(text: str, small: Path) -> None:
    (small / CONTRIB).write_text(text)
    create("classification", "b", contrib=True, root=small)
    assert "b" in [case.name for case in read_cases([small / CONTRIB], small)[0]]
    assert (small / CONTRIB).read_text().startswith(text)


def test_no_file_of_cases(small: Path) -> None:
    (small / CONTRIB).unlink()
    create("classification", "b", contrib=True, root=small)
    assert [case.name for case in read_cases([small / CONTRIB], small)[0]] == ["b"]


@pytest.mark.parametrize(
    ("domain", "model", "message"),
    [
        ("classification", "my-net", "model 'my-net' must start with .*; write 'my_net'"),
        ("classification", "MyNet", "write 'mynet'"),
        ("classification", "2net", "model '2net' must start with a lower-case letter"),
        ("classification", "class", "Python keyword"),
        ("classification", "", "model '' must"),
        ("classification", "../x", "model '../x' must"),
        ("classification", "网络", "model '网络' must"),
        ("my domain", "x", "domain 'my domain' must .*; write 'my_domain'"),
        ("classification", "a" * (LONGEST + 1), f"at most {LONGEST}"),
        ("classification", "digits", "example/classification/digits exists"),
        ("detection", "digits", "'digits' is used by example/classification/digits in .*model.yaml:"),
    ],
)
@pytest.mark.parametrize("contrib", [False, True])
def test_invalid_names(domain: str, model: str, message: str, contrib: bool, root: Path, tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    for name in (CORE, CONTRIB, "example/classification/digits/README.md"):
        (zoo / name).parent.mkdir(parents=True, exist_ok=True)
        (zoo / name).write_bytes((root / name).read_bytes())
    before = tree(zoo)
    with pytest.raises(ConfigError, match=message):
        create(domain, model, contrib=contrib, root=zoo)
    assert tree(zoo) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a: 1\n", "  - case_name: y\n    run_dir: z\n", "- case_name: [\n", "--- []\n...\n", "[]\n"]
)
def test_invalid_file_of_cases_has_no_effect(text: str, small: Path) -> None:
    (small / CONTRIB).write_text(text)
    before = tree(small)
    with pytest.raises(ConfigError, match=r"cannot be appended to .*contrib/model_config/model.yaml: ") as caught:
        create("classification", "x", contrib=True, root=small)
    assert "partial" not in str(caught.value)
    assert tree(small) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_not_writable(small: Path) -> None:
    (small / "contrib").chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied; nothing was changed"):
        create("classification", "x", contrib=True, root=small)


def test_interrupt_leaves_no_files(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = tree(small)
    monkeypatch.setattr("toolkit.scaffold.append_case", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create("classification", "x", contrib=True, root=small)
    assert tree(small) == before


def test_project_with_installed_zoo(tmp_path: Path) -> None:
    """Its scripts use the installed packages, and check for packages with the same names."""
    create("classification", "x", root=tmp_path)
    script = (tmp_path / "example/classification/x/example_valid.py").read_text()
    assert "sys.path.insert" not in script
    assert "tecoinfer_modelzoo.check()" in script
    assert "python -m pip install tecoinfer-modelzoo\n" in (tmp_path / "example/classification/x/README.md").read_text()
    assert [model.path for model in load_zoo(tmp_path).models] == ["example/classification/x"]


@pytest.mark.slow
def test_printed_next_steps(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clasification", "x", "--contrib", "--task", "classification"], small) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("contrib/example/clasification/x: 14 files; case 'x' ")
    assert "note: 'clasification' is a new domain; did you mean 'classification'?" in shown
    assert "teco run x export" in shown
    assert main(["text_classification", "z"], small) == 0  # the name of a task
    assert "note:" not in capsys.readouterr().out
    assert main(["nlp", "y"], small) == 0  # a domain that only a task knows would be no new one either
    assert "note:" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "task", "message"),
    [
        ("clasification", "", "'clasification' has no task; did you mean 'classification'\\?"),
        ("robotics", "", r"detection \(detection\), .*segm.*, text_classification \(nlp\).*--task NAME"),
        ("nlp", "text", "unknown task 'text'"),
        ("nlp", "detecton", "unknown task 'detecton'; did you mean 'detection'\\?"),
    ],
)
def test_unknown_tasks(domain: str, task: str, message: str, small: Path) -> None:
    before = tree(small)
    with pytest.raises(ConfigError, match=message) as caught:
        create(domain, "x", task=task, root=small)
    assert "\n" not in str(caught.value)
    assert tree(small) == before


@pytest.mark.slow
def test_domain_with_several_tasks_and_task_without_template(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(CLASSIFICATION, name="bare", template=None)
    given = {"classification": CLASSIFICATION, "bare": bare, "only": replace(bare, name="only", domain="face")}
    known = {name: task_class(task) for name, task in given.items()}
    monkeypatch.setattr("toolkit.scaffold.tasks", lambda: known)
    assert create("classification", "x", root=small).task == "classification"  # the task named so, not the domain
    del known["classification"]
    known["other"] = task_class(replace(CLASSIFICATION, name="other"))
    with pytest.raises(ConfigError, match=r"'classification' has several tasks: bare, other; .*--task"):
        create("classification", "y", root=small)
    with pytest.raises(ConfigError, match=r"'only' has no template; .*: other"):
        create("face", "y", root=small)


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.slow
def test_new_model_runs(zoo: Path, run_python: RunPython) -> None:
    """Run as in a fresh clone, without installation and PYTHONPATH."""
    pytest.importorskip("torch")
    core, contrib = (zoo / create("classification", "tiny" * n, contrib=n == 2, root=zoo).folder for n in (1, 2))
    runs = [core / name for name in SCRIPTS.values()] + [contrib / SCRIPTS["valid"], contrib / SCRIPTS["multi"]]
    for script in runs:
        done = run_python(script, cwd=zoo.parent, path=[])
        assert done.returncode == 0, done.stderr
        assert "random weights" in done.stdout
        for file in core.glob("*.onnx"):  # an export takes seconds; contrib's is run by the walk-through's test
            (contrib / file.name.replace("tiny", "tinytiny")).write_bytes(file.read_bytes())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "domain",
    [
        "dense_regression",
        "detection",
        "face_detection",
        "segmentation",
        "nlp",
        "face_verification",
        "recommendation",
        "gnn",
        "reinforcement",
        "restoration",
    ],
)
def test_placeholder_passes_check(domain: str, zoo: Path, run_python: RunPython) -> None:
    """Its export needs only the core install."""
    create(domain, "tiny", root=zoo)
    done = run_python("-m", "toolkit.cli", "check", "tiny", cwd=zoo, path=[zoo])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: 1 PASS" in done.stdout
