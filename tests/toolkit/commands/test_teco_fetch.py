"""``teco fetch`` and fetch paths, with a contrib package and a local index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from fetch_archives import FILES, row, serving, simple_page, table_row, wheel
from support import DIGITS, ROOT, RunPython

from engine import ConfigError
from toolkit.cli import execute
from toolkit.commands.completion import candidates
from toolkit.commands.fetch import main
from utils.fetch import FetchError, fetched_path, kept_path
from utils.tasks.find import add_contrib

Teco = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a clone whose contrib lists the packages ``mine`` and ``gone``; the index has only the first."""
    pages = tmp_path / "pages"
    pages.mkdir()
    archive = wheel(pages)
    simple_page(pages, archive)
    shutil.copytree(ROOT / "contrib" / "utils", tmp_path / "contrib" / "utils")
    rows = [row(archive), row(archive, name="gone", version="3.0")]
    table = tmp_path / "contrib" / "utils" / "fetch" / "mine.yaml"
    table.write_text(yaml.safe_dump([table_row(one) for one in rows]), encoding="utf-8")
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with serving(pages) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        yield tmp_path


@pytest.fixture
def teco(root: Path, capsys: pytest.CaptureFixture[str]) -> Teco:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(words, root)
        return code, *capsys.readouterr()

    return run


def test_list_of_packages(teco: Teco, root: Path) -> None:
    code, out, _ = teco()
    head, *lines = out.splitlines()
    assert (code, head.split()) == (0, ["name", "size", "kept", "what", "licence"])
    mine = next(line for line in lines if line.startswith("mine "))
    assert mine.split() == ["mine", "0.0", "MB", "-", "test", "data", "MIT"]
    teco("mine", "--from", str(root / "pages" / "mine-1.0-py3-none-any.whl"))
    assert " yes " in next(line for line in teco()[1].splitlines() if line.startswith("mine "))


def test_json(teco: Teco, root: Path) -> None:
    found = json.loads(teco("--json")[1])
    assert found["schema_version"] == 1
    mine = next(one for one in found["packages"] if one["name"] == "mine")
    assert (mine["path"], mine["licence"], mine["members"]) == (None, "MIT", ["mine/model/**"])
    given = teco("mine", "--json", "--from", str(root / "pages" / "mine-1.0-py3-none-any.whl"))[1]
    folder = json.loads(given)["packages"][0]["path"]
    assert (Path(folder) / "mine/model/a.bin").read_bytes() == FILES["mine/model/a.bin"]


@pytest.mark.slow
def test_failed_package_does_not_stop_the_others(teco: Teco, root: Path) -> None:
    code, out, err = teco("gone", "mine", "--path")
    assert code == 1
    assert Path(out.strip()).is_relative_to(root / "kept" / "mine")
    assert err.startswith("error: gone (pip mine 3.0) cannot be downloaded (")
    assert err.count("\n") == 1
    (root / "wrong.whl").write_bytes(b"wrong")
    code, out, err = teco("gone", "--from", str(root / "wrong.whl"))
    assert (code, out) == (2, "")
    assert err.startswith("error: gone (pip mine 3.0): wrong.whl has sha256 ")
    assert teco("mine", "mine")[1].count("\n") == 1


def test_remove(teco: Teco, root: Path) -> None:
    teco("mine", "--from", str(root / "pages" / "mine-1.0-py3-none-any.whl"))
    assert teco("mine", "--remove") == (0, "mine: 0.0 MB freed\n", "")
    assert teco("mine", "--remove") == (0, "mine: not in the cache\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mne"], "unknown package 'mne'; did you mean 'mine'?"),
        (["--from", "x"], "--from"),
        (["mine", "gone", "--from", "x"], "--from"),
        (["--path"], "--path needs"),
        (["--remove"], "--remove needs"),
        (["mine", "--remove", "--path"], "--path and --remove"),
        (["mine", "--remove", "--from", "x"], "--remove and --from"),
        (["mine", "--write_docs"], "--write_docs"),
        (["--frm"], "unrecognized arguments: --frm"),
    ],
)
def test_invalid_arguments(words: list[str], text: str, teco: Teco) -> None:
    with pytest.raises(ConfigError) as error:
        teco(*words)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_help_and_completion(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        execute(["fetch", "--help"])
    assert "fetch:NAME/path" in capsys.readouterr().out
    assert "fetch" in candidates(["fet"], root)
    assert candidates(["fetch", "min"], root) == ["mine", "minilm"]
    assert candidates(["fetch", "mine", "go"], root) == ["gone"]
    assert candidates(["fetch", "--fr"], root) == ["--from"]


# -------------------------------------------------------------------------------------------- paths into a package


@pytest.fixture
def script(root: Path, monkeypatch: pytest.MonkeyPatch, run_python: RunPython) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the valid script of digits with a package of its files."""
    images = DIGITS / "data" / "val"
    chosen = sorted(images.rglob("*.png"))[::40]
    files = {f"mine/data/{path.relative_to(images)}": path.read_bytes() for path in chosen}
    files["mine/digits.onnx"] = (DIGITS / "digits_dyn.onnx").read_bytes()
    place = root / "own"
    place.mkdir()
    package = row(wheel(place, files), members=("mine/**",), unpacked=sum(map(len, files.values())))
    table = root / "contrib" / "utils" / "fetch" / "mine.yaml"
    table.write_text(yaml.safe_dump([table_row(package)]), encoding="utf-8")
    archive = place / "mine-1.0-py3-none-any.whl"
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def run(*words: str, find: bool = True) -> tuple[int, str, str]:
        links = {"PIP_FIND_LINKS": str(archive.parent)} if find else {}
        path = [ROOT, root / "contrib"]
        done = run_python(DIGITS / "example_valid.py", "--target", "onnx", *words, path=path, **links)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_scripts_accept_fetch_paths(script: Callable[..., tuple[int, str, str]], root: Path) -> None:
    """Without a registry the script prints one error line; with one, it downloads the package."""
    paths = ("--ckpt", "fetch:mine/mine/digits.onnx", "--data_path", "fetch:mine/mine/data")
    code, _, err = script(*paths, find=False)
    assert code == 2
    assert err.startswith("error: mine (pip mine 1.0) cannot be downloaded (pip: ")
    assert err.count("\n") == 1
    code, out, err = script(*paths, "--json", str(root / "r.json"))
    assert (code, err) == (0, "")
    assert "eval_metric" in out
    assert json.loads((root / "r.json").read_text())["samples"] == 9


def test_invalid_fetch_paths(teco: Teco, root: Path) -> None:
    add_contrib(root)
    with pytest.raises(ConfigError, match=r"unknown package 'mne'; did you mean 'mine'\?"):
        fetched_path("fetch:mne/x")
    with pytest.raises(ConfigError, match=r"fetch:mine/\.\./\.\./x"):
        fetched_path("fetch:mine/../../x")
    assert kept_path(root, "fetch:mine/mine/model") == root / "fetch:mine/mine/model"
    teco("mine", "--from", str(root / "pages" / "mine-1.0-py3-none-any.whl"))
    with pytest.raises(FetchError, match=r"'mine/modl'; did you mean 'mine/model'\?"):
        fetched_path("fetch:mine/mine/modl")
    assert fetched_path("fetch:mine") == kept_path(root, "fetch:mine")
    assert fetched_path("fetch:mine/mine/model") == kept_path(root, "fetch:mine/mine/model") != root
    assert fetched_path("other") == Path("other")
    assert kept_path(root, "other") == root / "other"
