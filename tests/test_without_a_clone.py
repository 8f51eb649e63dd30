"""Two wheels in a new environment, and an empty folder: the walk of a user, and docs/how-to/without_a_clone.md.

The environment lends the packages of this one, but not the zoo and its models: those come from the wheels.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT
from test_models_package import build_source
from test_wheel import built_wheel
from walkthrough import actions, bash

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = next((ROOT / "docs").rglob("without_a_clone.md")).read_text(encoding="utf-8")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build both wheels, and return them."""
    if subprocess.run([sys.executable, "-c", "import setuptools"], check=False, capture_output=True).returncode:
        pytest.skip("setuptools is not installed here, and building the wheels needs it")
    folder = tmp_path_factory.mktemp("wheels")
    return built_wheel(folder / "zoo"), built_models(folder / "models")


def built_models(folder: Path) -> Path:
    source = build_source(folder / "source")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-q", "-w", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", str(source / "packages" / "models"), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (built,) = folder.glob("*.whl")
    return built


def environment(folder: Path, *wheels: Path) -> Path:
    """Return the ``bin`` of a new environment with the wheels."""
    venv.create(folder, symlinks=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # a path to the clone
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", *map(str, wheels)], check=True, env=kept)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin"


@pytest.fixture(scope="module")
def bare(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment without models."""
    return environment(tmp_path_factory.mktemp("bare") / "venv", wheels[0])


@pytest.fixture(scope="module")
def full(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the models."""
    return environment(tmp_path_factory.mktemp("full") / "venv", *wheels)


def variables(binaries: Path, cache: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "TECO_", "MPLBACKEND"))}
    return {**kept, "PATH": f"{binaries}:/usr/bin:/bin", "TECO_CACHE_DIR": str(cache)}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a command of an environment in an empty folder."""
    (tmp_path / "mine").mkdir()

    def start(binaries: Path, *words: object, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        first, *rest = map(str, words)
        command = [str(binaries / first), *rest]
        env = {**variables(binaries, tmp_path / "cache"), **more}
        done = subprocess.run(
            command, cwd=tmp_path / "mine", env=env, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == code, (command, done.stdout[-2000:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr
        return done

    return start


def test_page(full: Path, tmp_path: Path) -> None:
    """Its blocks ``sh`` are what the fixtures do, or need other machines; all others are run."""
    pytest.importorskip("torch")  # for the export that the check repeats
    (tmp_path / "mine").mkdir()
    env = variables(full, tmp_path / "cache")
    printed = "".join(bash(one.text, tmp_path / "mine", env) for one in actions(PAGE) if one.kind == "bash")
    assert re.search(r"^digits +classification +zoo +export valid", printed, re.MULTILINE)
    assert re.search(r"^digits +classification +project +export valid", printed, re.MULTILINE)
    assert len(re.findall(r"^(?:eval_metric )?0\.994444?\d*$", printed, re.MULTILINE)) == 3
    assert re.search(r"^ *(?:\S+ )?my_digits .*PASS", printed, re.MULTILINE), printed[-3000:]
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["example", "model_config"]


def test_first_steps_without_models_say_what_to_do(bare: Path, wheels: tuple[Path, Path], run: Run) -> None:
    assert run(bare, "teco").stdout == run(bare, "teco", "--help").stdout
    for words in (["models"], ["list"], ["info", "digits"], ["run", "digits", "valid"], ["fetch", "digits"]):
        error = run(bare, "teco", *words, code=2).stderr
        assert error.startswith("error: "), words
        assert error.count("\n") == 1, words
        assert "no models under" in error, words
        assert "pip install tecoinfer-modelzoo-models" in error, words
    for words in (["new", "--from", "digits", "mine"], ["serve", "digits"], ["profile", "digits"]):
        error = run(bare, "teco", *words, code=2).stderr
        assert (error.count("\n"), "no models under" in error) == (1, True), words
    assert "copy one: teco fetch MODEL" in run(bare, "teco", "check", code=2).stderr
    assert "usage: tecoexec" in run(bare, "tecoexec", "--help").stdout
    assert "SDAADriver: simulated" in run(bare, "teco-smi", "--simulated").stdout
    script = (
        "from tecoinfer_modelzoo import evaluate\ntry:\n    evaluate('digits')\nexcept ValueError as e:\n    print(e)"
    )
    assert "no models under" in run(bare, "python", "-c", script).stdout
    origin = run(bare, "python", "-c", "from tecoinfer_modelzoo import install_command as i; print(i('check'))").stdout
    assert origin == f'pip install "tecoinfer-modelzoo[check] @ {wheels[0].as_uri()}"\n'


def test_install_command_of_a_message_is_one_that_pip_takes(bare: Path, run: Run) -> None:
    command = run(bare, "python", "-c", "from tecoinfer_modelzoo import install_command as i; print(i('check'))").stdout
    wanted = re.findall(r'"(.+)"', command)[0]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pip = [sys.executable, "-m", "pip", "--python", str(bare / "python"), "install", "--dry-run", "--no-index", wanted]
    done = subprocess.run(pip, check=False, capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stderr
    assert "rich" in done.stdout


def test_pages_that_messages_name_are_in_the_wheel(bare: Path, run: Run, wheels: tuple[Path, Path]) -> None:
    error = run(bare, "teco", "new", "no_such_domain", "mine", code=2).stderr
    (page,) = re.findall(r"(/\S+/adding_a_domain\.md)", error)
    assert Path(page).is_relative_to(bare.parent)
    assert "# " in Path(page).read_text(encoding="utf-8")
    folder = next(one for one in Path(page).parents if one.name == "docs")
    for file in folder.rglob("*.md"):  # links outside code blocks lead to files that are installed
        text = re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"(?<!`)\]\((?![a-z]+:)([^()\s#]+)", text):
            assert (file.parent / target).exists(), (file, target)
    with zipfile.ZipFile(wheels[0]) as file:
        held = {name for name in file.namelist() if name.startswith("tecoinfer_modelzoo/docs/")}
    pages = {f"tecoinfer_modelzoo/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert pages - held == set()


def test_models_are_used_where_they_are_installed(full: Path, run: Run) -> None:
    listed = json.loads(run(full, "teco", "models", "--json").stdout)["models"]
    assert {"digits", "digit_detector", "tiny_gpt", "resnet"} <= {model["name"] for model in listed}
    assert {model["place"] for model in listed} == {"zoo"}
    names = [model["name"] for model in listed if model["metric"]]
    assert len(names) > 15
    assert "eval_metric 0.994444" in run(full, "teco", "run", "digits", "valid", "--target", "onnx").stdout
    assert "copy the model first" in run(full, "teco", "run", "digits", "export", code=2).stderr
    assert "bad node" in run(full, "teco", "compare", "digits").stdout
    script = "from tecoinfer_modelzoo import predict; print(len(predict('digits')))"
    assert int(run(full, "python", "-c", script).stdout.split()[-1]) > 10
    assert "copy one: teco fetch MODEL" in run(full, "teco", "check", code=2).stderr


def test_adapt_and_template_in_an_empty_folder(full: Path, run: Run, tmp_path: Path) -> None:
    run(full, "teco", "fetch", "digits", "--out", "there")
    file = tmp_path / "mine/there/example/classification/digits/digits_dyn.onnx"
    data = file.parent / "data/val"
    terms = ["--licence", "CC0", "--data_source", "UCI"]
    done = run(full, "teco", "adapt", file, "--name", "adapted", "--task", "classification", "--data", data, *terms)
    assert "PASS: teco check adapted" in done.stdout
    run(full, "teco", "new", "classification", "placed")
    run(full, "teco", "run", "placed", "export")
    listed = run(full, "teco", "list").stdout
    assert re.search(r"^adapted +classification +project", listed, re.MULTILINE)
    assert re.search(r"^placed +classification +project", listed, re.MULTILINE)
    assert "core" not in listed


def test_other_zoos_by_path_and_url(bare: Path, run: Run, tmp_path: Path) -> None:
    """A clone, an archive by file:// and a git repository replace the package of models."""
    source = build_source(tmp_path / "clone", "example/classification/digits")
    archive = shutil.make_archive(str(tmp_path / "zoo-main"), "gztar", tmp_path, "clone")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-Af"], ["commit", "-qm", "models"]):
        subprocess.run(["git", *who, *words], cwd=source, check=True)  # noqa: S607
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(tmp_path / "zoo.git")], check=True)  # noqa: S607
    for number, zoo in enumerate([str(source), Path(archive).as_uri(), archive, str(tmp_path / "zoo.git")]):
        done = run(bare, "teco", "new", "--from", "digits", f"mine_{number}", "--zoo", zoo)
        assert f"case mine_{number} was appended" in done.stdout
    assert "eval_metric 0.994444" in run(bare, "teco", "run", "digits", "valid", TECO_ZOO=archive).stdout
    error = run(bare, "teco", "models", "--zoo", "http://127.0.0.1:9/zoo.tar.gz", code=2).stderr
    assert (error.count("\n"), "Connection refused" in error) == (1, True)
    error = run(bare, "teco", "models", "--zoo", "gone", code=2).stderr
    assert error == "error: --zoo gone does not exist; pass a clone of the zoo, or an archive or URL of one\n"


def test_own_packages_of_these_names_are_told_apart(full: Path, run: Run, tmp_path: Path) -> None:
    run(full, "teco", "fetch", "digits")
    folder = tmp_path / "mine/example/classification/digits"
    (tmp_path / "mine" / "utils").mkdir()
    (tmp_path / "mine" / "utils" / "__init__.py").write_text("raise RuntimeError\n")
    assert "eval_metric" in run(full, "teco", "run", "digits", "valid", "--target", "onnx").stdout
    (folder / "engine.py").write_text("")
    error = run(full, "python", folder / "example_valid.py", code=1).stderr
    assert error.startswith(f"error: 'engine' is your own {folder / 'engine.py'} here, not the zoo's ")
