"""Other zoos: a folder, archives, a git repository, a URL, and installed packages of models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from fetch_archives import serving
from support import DIGITS, ROOT

from engine import ConfigError
from toolkit import zoo_archives, zoo_sources
from toolkit.zoo import find_model, load_zoo
from toolkit.zoo_sources import find_sources, install_models
from utils.fetch import FetchError, UnreachableError

CASE = """\
- case_name: {name}
  run_dir: example/vision/{name}
  run_example_valid:
    run_file: example_valid.py
    params: {{ckpt: m.onnx, batch_size: 1, target: onnx, dtype: float32}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TECO_ZOO", raising=False)
    return tmp_path / "cache" / "zoos"


def write_zoo(root: Path, *names: str) -> Path:
    for name in names:
        (root / "example" / "vision" / name).mkdir(parents=True)
        (root / "example" / "vision" / name / "example_valid.py").write_text("print('eval_metric 1')\n")
    (root / "model_config").mkdir()
    (root / "model_config" / "model.yaml").write_text("".join(CASE.format(name=name) for name in names))
    (root / "utils").mkdir()
    (root / "utils" / "code.py").write_text("raise RuntimeError\n")
    return root


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return write_zoo(tmp_path / "zoo-main", "one", "two")


def packed(zoo: Path, name: str, inside: str) -> Path:
    """Return an archive of the zoo, whose paths start with the text ``inside``."""
    archive = zoo.parent / name
    files = [path for path in sorted(zoo.rglob("*")) if path.is_file()]
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive, "w") as file:
            for path in files:
                file.write(path, f"{inside}{path.relative_to(zoo)}")
    else:
        with tarfile.open(archive, "w:gz") as file:
            for path in files:
                file.add(path, f"{inside}{path.relative_to(zoo)}")
    return archive


def names_of(given: str, project: Path) -> list[str]:
    return [model.path for model in load_zoo(project, given).models]


@pytest.mark.parametrize("inside", ["", "./", "zoo-main/"])
@pytest.mark.parametrize("name", ["zoo.tar.gz", "zoo.zip"])
def test_archives_are_unpacked_without_other_code(
    name: str, inside: str, zoo: Path, tmp_path: Path, cache: Path
) -> None:
    archive = packed(zoo, name, inside)
    wanted = ["example/vision/one", "example/vision/two"]
    assert names_of(str(archive), tmp_path) == wanted
    assert names_of(archive.as_uri(), tmp_path) == wanted
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    assert sorted(path.name for path in folder.iterdir()) == ["example", "model_config"]
    shutil.rmtree(zoo / "example" / "vision" / "two")
    (zoo / "model_config" / "model.yaml").write_text(CASE.format(name="one"))
    packed(zoo, name, inside)
    assert names_of(str(archive), tmp_path) == wanted[:1], "the archive was changed"


def test_git_repositories(zoo: Path, tmp_path: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "models"]):
        subprocess.run(["git", *who, *words], cwd=zoo, check=True)  # noqa: S607
    bare = tmp_path / "zoo.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(zoo), str(bare)], check=True)  # noqa: S607
    assert names_of(str(bare), tmp_path) == ["example/vision/one", "example/vision/two"]
    with serving(tmp_path) as server:
        subprocess.run(["git", "update-server-info"], cwd=bare, check=True)  # noqa: S607
        with pytest.raises(UnreachableError, match=r"zoo2\.git cannot be read"):
            names_of(f"{server.url}/zoo2.git", tmp_path)


def test_url_is_downloaded_once_a_day(zoo: Path, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    packed(zoo, "zoo.tar.gz", "zoo-main/")
    with serving(tmp_path) as server:
        url = f"{server.url}/zoo.tar.gz"
        for _ in range(2):
            assert names_of(url, tmp_path) == ["example/vision/one", "example/vision/two"]
        assert server.asked == ["/zoo.tar.gz"]
        (folder,) = (path for path in cache.iterdir() if path.is_dir())
        os.utime(folder, (0, 0))
        assert len(names_of(url, tmp_path)) == 2
        assert server.asked == ["/zoo.tar.gz"] * 2
        os.utime(folder, (0, 0))
    assert len(names_of(url, tmp_path)) == 2, "without a network"
    assert "the copy of an earlier download is used" in caplog.text
    with pytest.raises(UnreachableError, match=r"other\.zip"):
        names_of(url.replace("zoo.tar.gz", "other.zip"), tmp_path)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("gone", "--zoo gone does not exist; pass a clone"),
        ("empty", "--zoo empty is a folder without example/DOMAIN/MODEL"),
        ("plain.txt", "--zoo plain.txt is not an archive"),
        ("empty.zip", "empty.zip has no example/DOMAIN/MODEL"),
        ("broken.tar.gz", "broken.tar.gz is damaged"),
        ("out.tar", "is outside the folder"),
        ("link.tar", "is a link or a special file"),
        ("ftp://host/zoo.git", "ftp://host/zoo.git has an unknown scheme"),
    ],
)
def test_what_is_not_a_zoo_is_one_line(
    given: str, text: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("plain.txt").write_text("a")
    Path("broken.tar.gz").write_bytes(b"\x1f\x8b\x08\x00 broken")
    with zipfile.ZipFile("empty.zip", "w") as file:
        file.writestr("zoo/README.md", "nothing")
    for name, entry in {"out.tar": "example/../../a", "link.tar": "example/a/b"}.items():
        with tarfile.open(name, "w") as archive:
            member = tarfile.TarInfo(entry)
            if name == "link.tar":
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises((ConfigError, FetchError)) as error:
        find_sources(given)
    assert text in str(error.value)
    assert "\n" not in str(error.value)
    assert not [path for path in cache.glob("*") if path.is_dir()]
    assert not (tmp_path.parent / "a").exists()


def test_large_archive_is_refused(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(zoo, "zoo.zip", "")
    monkeypatch.setattr(zoo_archives, "RATIO", 0)
    monkeypatch.setattr(zoo_archives, "FREE", 10)
    with pytest.raises(FetchError, match="unpacks to more than 10 bytes"):
        names_of(str(archive), tmp_path)


def test_models_of_the_project_come_first_and_hide_others(zoo: Path, tmp_path: Path) -> None:
    project = write_zoo(tmp_path / "project", "two", "three")
    models = load_zoo(project, str(zoo)).models
    assert [(model.name, model.place) for model in models] == [("three", "project"), ("two", "project"), ("one", "zoo")]
    assert find_model("two", models)[0].root == project
    assert find_model("vision/one", models)[0].shown_path == str(zoo / "example/vision/one")
    (project / "tecoinfer_modelzoo").mkdir()
    assert {model.place for model in load_zoo(project).models} == {"core"}


def test_variable_names_the_zoo_and_the_flag_precedes_it(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TECO_ZOO", str(zoo))
    assert len(load_zoo(tmp_path / "none").models) == 2
    assert find_sources(str(ROOT)).roots == (ROOT,)
    monkeypatch.setenv("TECO_ZOO", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"TECO_ZOO .*gone does not exist"):
        find_sources()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Write the metadata of a package with an entry point, and act as an installed wheel."""
    info = folder / "my_models-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tecoinfer.zoos]\nmine = {module}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(zoo_sources, "clone", lambda: None)


def test_installed_packages_of_models(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "site", monkeypatch, "my_models")
    shutil.copytree(zoo, tmp_path / "site" / "my_models")
    (tmp_path / "site" / "my_models" / "__init__.py").write_text("raise RuntimeError('is not imported')\n")
    assert find_sources().roots == (tmp_path / "site" / "my_models",)
    assert names_of("", tmp_path) == ["example/vision/one", "example/vision/two"]
    assert "my_models" not in sys.modules
    monkeypatch.setattr(zoo_sources, "clone", lambda: ROOT)
    assert find_sources().roots == (), "a clone has its own models"


@pytest.mark.parametrize("module", ["my_gone_models", "email"])
def test_package_without_models_is_a_warning(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "site", monkeypatch, module)
    found = find_sources()
    assert (found.roots, len(found.problems)) == ((), 1)
    assert f"package my-models: {module} has no folder example/" in found.problems[0]


def test_without_models_the_error_says_where_to_get_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo_sources, "clone", lambda: None)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    with pytest.raises(ConfigError) as error:
        load_zoo(tmp_path)
    text = str(error.value)
    assert f"no models under {tmp_path}" in text
    assert "pip install tecoinfer-modelzoo-models" in text
    assert "--zoo PATH" in text
    assert "\n" not in text


def test_models_are_installed_from_where_the_zoo_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(url: str) -> str:
        monkeypatch.setattr(zoo_sources, "origin", lambda: (url, ""))
        return install_models()

    (tmp_path / "zoo.whl").touch()
    assert command((tmp_path / "zoo.whl").as_uri()) == "pip install tecoinfer-modelzoo-models"
    beside = tmp_path / "tecoinfer_modelzoo_models-0.1.0-py3-none-any.whl"
    beside.touch()
    assert command((tmp_path / "zoo.whl").as_uri()) == f'pip install "{beside}"'
    assert command(ROOT.as_uri()) == f'pip install "{ROOT / "packages" / "models"}"'
    url = "git+https://host/zoo.git@abc"
    assert command(url) == f'pip install "tecoinfer-modelzoo-models @ {url}#subdirectory=packages/models"'
    assert command("") == "pip install tecoinfer-modelzoo-models"


def test_digits_are_a_model_of_the_clone_as_a_zoo(tmp_path: Path) -> None:
    model, case = find_model("digits", load_zoo(tmp_path, str(ROOT)).models)
    assert (model.place, model.folder, case) == ("zoo", DIGITS, None)
