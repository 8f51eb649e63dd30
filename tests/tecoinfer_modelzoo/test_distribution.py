from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT, RunPython

import tecoinfer_modelzoo
from engine.host import version_line
from model_config.run.snapshot import Snapshots
from tecoinfer_modelzoo import clone, distribution, has_packages, install_command, version
from tecoinfer_modelzoo.distribution import readme_install, with_page_paths
from tecoinfer_modelzoo.errors import DataError
from tecoinfer_modelzoo.extra import needed

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_version_of_a_clone() -> None:
    assert clone() == ROOT
    assert f'\nversion = "{version()}"\n' in PROJECT


def test_install_command_fits_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("check") == 'pip install -c constraints.txt -e ".[check]"'
    monkeypatch.chdir(tmp_path)
    assert install_command("check", "torch") == f'pip install -c "{ROOT}/constraints.txt" -e "{ROOT}[check,torch]"'
    monkeypatch.setattr(distribution, "HOME", tmp_path)  # like site-packages: without the files of a clone
    monkeypatch.setattr(distribution, "origin", lambda: ("", ""))
    assert install_command("check") == 'pip install "tecoinfer-modelzoo[check]"'
    monkeypatch.setattr(distribution, "origin", lambda: ("file:///a.whl", ""))
    assert install_command("check") == 'pip install "tecoinfer-modelzoo[check] @ file:///a.whl"'
    assert readme_install() == 'python -m pip install "tecoinfer-modelzoo @ file:///a.whl"'


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ({"url": "https://host/a.whl", "archive_info": {}}, ("https://host/a.whl", "")),
        ({"url": "file:///nowhere/a.whl", "archive_info": {}}, ("", "")),
        ({"url": ROOT.as_uri(), "dir_info": {}}, (ROOT.as_uri(), "")),
        (
            {"url": "https://host/z.git", "vcs_info": {"vcs": "git", "commit_id": "ab"}, "subdirectory": "sub"},
            ("git+https://host/z.git@ab", "sub"),
        ),
        ({"url": "https://host/z.git", "vcs_info": {"vcs": "git"}}, ("", "")),
        (["no", "mapping"], ("", "")),
        (None, ("", "")),
    ],
)
def test_origin_of_an_installation(
    written: object, wanted: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "tecoinfer_modelzoo-9.8.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tecoinfer-modelzoo\nVersion: 9.8.7\n")
    if written is not None:
        (info / "direct_url.json").write_text(json.dumps(written))
    monkeypatch.syspath_prepend(tmp_path)
    distribution.origin.cache_clear()
    try:
        assert distribution.origin() == wanted
    finally:
        distribution.origin.cache_clear()


def test_pages_are_named_by_their_path_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "see docs/one.md (docs/how-to/more.md#a), not docs/gone.md, /x/docs/one.md or my-docs/one.md"
    assert with_page_paths(text) == text, "a clone has the pages there"
    docs = tmp_path / "tecoinfer_modelzoo" / "docs"
    (docs / "how-to").mkdir(parents=True)
    (docs / "one.md").touch()
    (docs / "how-to" / "more.md").touch()
    monkeypatch.setattr(distribution, "HOME", tmp_path)
    monkeypatch.setattr(distribution, "DOCS", docs)
    shown = f"see {docs}/one.md ({docs}/how-to/more.md#a), not docs/gone.md, /x/docs/one.md or my-docs/one.md"
    assert with_page_paths(text) == shown
    assert str(DataError(f"bad; {text}")) == f"bad; {shown}"


def test_pages_in_messages_exist() -> None:
    """In the packages' sources, comments included: each is in the documentation, and so in the wheel."""
    named = {}
    for package in (*tecoinfer_modelzoo.own_packages.PACKAGES, "tecoinfer_modelzoo", "torch_sdaa"):
        for file in (ROOT / package).rglob("*.*"):
            if file.suffix in (".py", ".yaml", ".tmpl", ".j2", ".html"):
                for page in re.findall(r"(?<![\w/*-])docs/[\w./-]+\.md\b", file.read_text(encoding="utf-8")):
                    named[page] = file
    assert len(named) > 10
    assert {page: file for page, file in named.items() if not (ROOT / page).is_file()} == {}


def test_install_command_in_a_copy_names_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`teco check` runs models in temporary copies of the checkout."""
    copies = Snapshots(ROOT, tmp_path)
    folder = copies.current().folder
    monkeypatch.setattr(distribution, "HOME", folder)
    monkeypatch.chdir(folder)
    assert clone() == folder
    assert install_command("check") == f'pip install -c "{ROOT}/constraints.txt" -e "{ROOT}[check]"'
    script = folder / "example/classification/digits/export_onnx.py"
    with pytest.raises(SystemExit), needed(str(script)):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    wanted = ROOT / "example/classification/digits/requirements.txt"
    assert f'run: pip install -c "{ROOT}/constraints.txt" -r "{wanted}"\n' in capsys.readouterr().err
    copies.close()


def test_an_installed_package_has_the_version_of_its_metadata(tmp_path: Path, run_python: RunPython) -> None:
    code = "from tecoinfer_modelzoo import clone, version; print(clone(), version())"
    (tmp_path / "tecoinfer_modelzoo").symlink_to(ROOT / "tecoinfer_modelzoo")
    copied = tmp_path / "site"
    for file in (ROOT / "tecoinfer_modelzoo").glob("*.py"):
        (copied / "tecoinfer_modelzoo").mkdir(parents=True, exist_ok=True)
        (copied / "tecoinfer_modelzoo" / file.name).write_bytes(file.read_bytes())
    info = copied / "tecoinfer_modelzoo-9.8.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tecoinfer-modelzoo\nVersion: 9.8.7\n")
    done = run_python("-c", code, path=[copied], cwd=tmp_path / "site")
    assert (done.stdout, done.stderr) == ("None 9.8.7\n", "")


def test_extras_in_messages_exist() -> None:
    written = re.compile(r"install_command\(\s*[\"'](\w+)[\"']|extra=\"(\w+)\"|extra\(.*, \"(\w+)\"\)")
    names = set()
    for package in (*tecoinfer_modelzoo.own_packages.PACKAGES, "tecoinfer_modelzoo"):
        for file in (ROOT / package).rglob("*.py"):
            names |= {word for found in written.findall(file.read_text(encoding="utf-8")) for word in found if word}
    assert names >= {"mpi", "openvino", "plot", "ray", "tensorrt", "toolkit", "torch"}
    assert not [name for name in names if not re.search(rf"^{name} = \[", PROJECT, re.MULTILINE)]


def test_install_commands_are_not_written_out() -> None:
    """They come from `install_command`, which distinguishes a clone from a wheel."""
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for package in tecoinfer_modelzoo.own_packages.PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if ("constraints.txt" in line and "pip" in line) or re.search(r'"\.\[\w+\]"', line)
    ]
    assert not wrong


def test_a_project_is_not_a_clone(tmp_path: Path) -> None:
    assert has_packages(ROOT)
    assert not has_packages(tmp_path)


def test_version_line_lists_the_numeric_packages() -> None:
    line = version_line("teco ops")
    assert line.startswith(f"teco ops {version()} (from {ROOT}, python 3.")
    assert re.search(r", numpy \d.*, onnx \d.*, onnxruntime \d", line)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "toolkit.cli"],
        ["-m", "toolkit.cli", "profile"],
        ["-m", "toolkit.cli", "dump"],
        ["-m", "model_config.check"],
        ["-m", "tecoexec"],
        ["-m", "tecoexec.sweep"],
        ["-m", "tecoexec.save_engine"],
        ["-m", "engine"],
        ["-m", "engine.sdaa.smi", "--simulated"],
        ["example/classification/digits/example_valid.py"],
        ["example/classification/digits/example_single_batch.py"],
        pytest.param(["example/classification/digits/export_onnx.py"], marks=pytest.mark.torch),
        pytest.param(["example/classification/resnet/export_onnx.py"], marks=pytest.mark.torch),
    ],
    ids=" ".join,
)
def test_every_command_has_a_version(command: list[str], run_python: RunPython) -> None:
    done = run_python(*command, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"\S.* {version()} \(from {re.escape(str(ROOT))}, python 3.+\)\n", done.stdout)
