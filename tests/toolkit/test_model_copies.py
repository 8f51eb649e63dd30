"""Copies of models into a project: ``teco fetch MODEL`` and ``teco new --from``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support import DIGITS, ROOT

from engine import ConfigError
from model_config.cases.config import load_cases
from model_config.structure import check_structure
from toolkit.commands import fetch, info, list as listing, new
from toolkit.commands.run import command_line
from toolkit.model_copies import _shared, copy_model
from toolkit.zoo import find_model, load_zoo

CONFIG = "model_config/model.yaml"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a zoo of three models of the clone: reading all cases of the clone takes most of a second."""
    root = tmp_path_factory.mktemp("zoo")
    folders = [f"example/classification/{name}" for name in ("digits", "mobilenet_v2", "resnet")]
    for folder in folders:
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    entries = re.split(r"^(?=- case_name:)", (ROOT / CONFIG).read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = [entry for entry in entries if any(f"/{folder}\n" in entry for folder in folders)]
    rows = (ROOT / "docs/data.yaml").read_text(encoding="utf-8").split("\n- ")
    for name, text in ((CONFIG, "".join(own)), ("docs/data.yaml", f"- {rows[1]}")):
        (root / name).parent.mkdir()
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def project(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's empty folder, with the zoo."""
    monkeypatch.setenv("TECO_ZOO", str(zoo))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_fetched_model_is_the_original_and_passes_the_structure_check(
    project: Path, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.main(["digits"], project) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("example/classification/digits: ")
    assert "licence: handwritten digits" in shown
    folder = project / "example/classification/digits"
    mine, original = files_of(folder), {n: d for n, d in files_of(DIGITS).items() if "__pycache__" not in n}
    assert mine.keys() == original.keys()
    assert all(mine[name] == original[name] for name in mine if not name.endswith((".py", ".md")))
    script = (folder / "example_valid.py").read_text()
    assert "sys.path.append(str(Path(__file__).resolve().parents[3]))" in script
    assert "tecoinfer_modelzoo.check()" in script
    (case,) = load_cases([project / CONFIG], project)
    (known,) = [one for one in load_cases([zoo / CONFIG], zoo) if one.name == "digits"]
    assert (case.steps, case.accuracy) == (known.steps, known.accuracy)
    assert [str(one) for one in check_structure(case, project)] == []
    listing.main([], project)
    assert re.search(r"^digits +classification +project .*0\.9944", capsys.readouterr().out, re.MULTILINE)


def test_copy_under_another_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new.main(["--from", "digits", "my_digits"], project) == 0
    assert "teco check my_digits" in capsys.readouterr().out
    folder = project / "example/classification/my_digits"
    assert not (folder / "numerics.yaml").exists()
    assert not (folder / "perf.yaml").exists()
    readme = (folder / "README.md").read_text()
    assert readme.startswith("# My Digits\n")
    assert "cd example/classification/my_digits\n" in readme
    (case,) = load_cases([project / CONFIG], project)
    assert (case.name, case.run_dir) == ("my_digits", "example/classification/my_digits")
    assert [str(one) for one in check_structure(case, project)] == []
    model, _ = find_model("my_digits", load_zoo(project).models)
    assert model.place == "project"
    fetch.main(["digits"], project)
    assert [one.name for one in load_cases([project / CONFIG], project)] == ["my_digits", "digits"]


def test_data_of_other_models_are_copied_and_their_model_later(project: Path) -> None:
    fetch.main(["mobilenet_v2"], project)
    images = project / "example/classification/resnet/images"
    assert files_of(images) == files_of(ROOT / "example/classification/resnet/images")
    load_cases([project / CONFIG], project)
    assert fetch.main(["resnet"], project) == 0
    assert (images.parent / "example_valid.py").is_file()


def test_json_and_paths(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch.main(["digits", "--json", "--out", str(tmp_path / "a" / "b")], project) == 0
    found = json.loads(capsys.readouterr().out)
    (model,) = found["models"]
    assert found["schema_version"] == 1
    assert (model["folder"], model["cases"]) == ("example/classification/digits", ["digits"])
    assert (tmp_path / "a/b" / model["folder"] / "digits.onnx").is_file()
    assert fetch.main(["classification/digits", "--path"], project) == 0
    assert capsys.readouterr().out == f"{project}/example/classification/digits\n"


def test_folder_that_is_there_is_not_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.main(["digits"], project)
    before = files_of(project)
    assert fetch.main(["digits"], project) == 2
    assert "example/classification/digits exists" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="example/classification/digits exists"):
        new.main(["--from", "digits", "digits"], project)
    assert files_of(project) == before


def test_half_a_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project / "example/classification/digits"
    shutil.copytree(DIGITS / "data", folder / "data")
    (folder / "notes.txt").write_text("mine")
    assert fetch.main(["digits"], project) == 2
    error = capsys.readouterr().err
    assert "example/classification/digits/notes.txt is not a file of the model" in error
    assert error.count("\n") == 1
    assert not (project / CONFIG).exists()
    (folder / "notes.txt").unlink()
    assert fetch.main(["digits"], project) == 0


def test_nothing_is_left_if_the_case_cannot_be_appended(project: Path) -> None:
    (project / "model_config").mkdir()
    (project / CONFIG).write_text("not: a list\n")
    before = files_of(project)
    with pytest.raises(ConfigError, match="a case cannot be appended"):
        copy_model(find_model("digits", load_zoo(project).models)[0], project)
    assert files_of(project) == before
    assert not (project / "example").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["digts"], "did you mean 'digits'"),
        (["digits", "--remove"], "--remove is for packages"),
        (["digits", "--from", "x.whl"], "--from is for packages"),
        (["minilm", "--out", "x"], "--out is for models"),
        (["digits", "--zoo", "nowhere"], "--zoo nowhere does not exist"),
    ],
)
def test_fetch_errors_are_one_line(words: list[str], text: str, project: Path) -> None:
    with pytest.raises(ConfigError) as error:
        fetch.main(words, project)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--from", "digits", "classification", "mine"], "pass only the name of the copy"),
        (["--from", "digits", "Mine"], "write 'mine'"),
        (["--from", "digts", "mine"], "unknown model 'digts'; did you mean 'digits'"),
        (["--from", "digits", "mine", "--contrib"], "--from and --contrib exclude each other"),
        (["classification"], "required: MODEL"),
        (["classification", "mine", "--zoo", "x"], "--zoo needs --from"),
    ],
)
def test_new_errors_are_one_line(words: list[str], text: str, project: Path) -> None:
    with pytest.raises(ConfigError) as error:
        new.main(words, project)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_model_of_another_zoo_is_shown_and_not_exported_into(
    project: Path, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info.main(["digits"], project)
    shown = capsys.readouterr().out
    assert f"path     {zoo}/example/classification/digits (zoo)\ncopy     teco fetch classification/digits\n" in shown
    assert "data and weights\n  handwritten digits" in shown
    model, _ = find_model("digits", load_zoo(project).models)
    with pytest.raises(ConfigError, match="copy the model first: teco fetch classification/digits"):
        command_line(model, None, "export", [])


def test_what_a_model_reads_in_the_folder_of_another_is_found() -> None:
    """In its scripts and its cases."""
    used = {model.path: _shared(model) for model in load_zoo(ROOT).models}
    assert used["example/classification/clip"] == ["example/classification/digit_clip/data"]
    assert used["example/classification/digits"] == []
    assert sum("example/classification/resnet/images" in places for places in used.values()) > 10
