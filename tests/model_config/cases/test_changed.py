"""Tests of --changed_since on real repositories, and of the import graph."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from engine import ConfigError
from model_config.cases.changed import changed_cases
from model_config.cases.config import ROOT, STEPS, Case, load_cases, read_cases
from model_config.cases.imports import Imports

FILES = {
    "pyproject.toml": "[project]\n",
    "constraints.txt": "numpy==2\n",
    "README.md": "# Zoo\n",
    "docs/guide.md": "guide\n",
    "tests/test_x.py": "import engine\n",
    "benchmarks/bench.py": "import engine\n",
    "model_config/check.py": "",
    "engine/__init__.py": "from engine.base import Engine\n",
    "engine/base.py": "class Engine: ...\n",
    "engine/registry.py": "TABLE = {'onnx': 'engine.ort:Ort'}\n",
    "engine/ort.py": "class Ort: ...\n",
    "engine/unused.py": "",
    "engine/sdaa/__init__.py": "",
    "engine/sdaa/card.py": "",
    "engine/sdaa/t1.yaml": "spa: 4\n",
    "engine/passes/__init__.py": "",
    "engine/passes/resnet/__init__.py": "",
    "engine/passes/resnet/resnet_pass.py": "from engine.passes import tools\n",
    "engine/passes/tools.py": "",
    "engine/passes/default_pass.py": "",
    "utils/__init__.py": "",
    "utils/text.py": "",
    "utils/image.py": "def load():\n    from utils.codec import decode\n    return decode\n",
    "utils/codec.py": "def decode(): ...\n",
    "utils/plain.py": "import importlib\nimportlib.import_module('utils.late')\nDEFAULT = 'default_pass.py'\n",
    "utils/late.py": "",
    "contrib/utils/__init__.py": "",
    "contrib/utils/extra.py": "",
    "data/val/1.png": "png",
}
SCRIPTS = {
    "alpha": "import helper\nfrom engine import registry\nfrom utils import image\n",
    "beta": "import engine.sdaa.card\nimport utils.plain\n",
    "gamma": "from utils.extra import x\nfrom .relative import y\n",
}


class Repo:
    """A temporary repository with a commit of three cases; the third is contributed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        entries = []
        for name, text in SCRIPTS.items():
            folder = ("contrib/" if name == "gamma" else "") + f"example/x/{name}"
            for file in ("export.py", "valid.py", "README.md", "helper.py", "relative.py"):
                self.write(f"{folder}/{file}", text if file == "valid.py" else "")
            entries.append(self.entry(name, folder))
        entries[0]["run_example_valid"]["params"]["others"] = {"pass_path": "resnet/resnet_pass"}
        entries[1]["run_example_valid"]["params"]["data_path"] = "../../../data/val"
        for name, text in FILES.items():
            self.write(name, text)
        self.describe(entries[:2], "model_config/model.yaml")
        self.describe(entries[2:], "contrib/model_config/model.yaml")
        self.entries = entries
        self.git("init", "-q", "-b", "main")
        self.commit("first")

    @staticmethod
    def entry(name: str, folder: str) -> dict[str, object]:
        params = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}
        steps = {key: {"run_file": "valid.py", "params": dict(params)} for key in STEPS.values()}
        return {"case_name": name, "run_dir": folder, **steps, "run_export": {"run_file": "export.py"}}

    def describe(self, entries: list[dict[str, object]], name: str) -> None:
        self.write(name, yaml.safe_dump(entries, sort_keys=False))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *words]
        ran = subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)
        return ran.stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def cases(self) -> list[Case]:
        files = [self.root / name for name in ("model_config/model.yaml", "contrib/model_config/model.yaml")]
        cases, problems = read_cases(files, self.root)
        assert problems == []
        return cases

    def changed(self, rev: str = "main") -> dict[str, str]:
        cases, why = changed_cases(self.cases(), rev, self.root)
        assert [case.name for case in cases] == list(why)
        return why


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


ALL = ["alpha", "beta", "gamma"]


@pytest.mark.parametrize(
    ("file", "touched", "why"),
    [
        ("example/x/alpha/valid.py", ["alpha"], "in its folder"),
        ("example/x/alpha/README.md", ["alpha"], "in its folder"),
        ("contrib/example/x/gamma/relative.py", ["gamma"], "in its folder"),
        ("utils/image.py", ["alpha"], "which its scripts use"),
        ("utils/codec.py", ["alpha"], "which its scripts use"),
        ("engine/ort.py", ["alpha"], "which its scripts use"),
        ("engine/__init__.py", ["alpha", "beta"], "which its scripts use"),
        ("engine/base.py", ["alpha", "beta"], "which its scripts use"),
        ("engine/sdaa/t1.yaml", ["beta"], "which its scripts use"),
        ("engine/sdaa/new.yaml", ["beta"], "which its scripts use"),
        ("engine/passes/resnet/resnet_pass.py", ["alpha"], "which its scripts use"),
        ("engine/passes/tools.py", ["alpha"], "which its scripts use"),
        ("engine/passes/default_pass.py", ["beta"], "which its scripts use"),
        ("utils/late.py", ["beta"], "which its scripts use"),
        ("utils/__init__.py", ALL, "which its scripts use"),
        ("contrib/utils/extra.py", ["gamma"], "which its scripts use"),
        ("data/val/1.png", ["beta"], "which is its data"),
        ("data/val/2.png", ["beta"], "which is its data"),
        ("pyproject.toml", ALL, "which every case depends on"),
        ("constraints.txt", ALL, "which every case depends on"),
        ("model_config/check.py", ALL, "which every case depends on"),
        ("utils/text.py", [], ""),
        ("engine/unused.py", [], ""),
        ("README.md", [], ""),
        ("docs/guide.md", [], ""),
        ("tests/test_x.py", [], ""),
        ("benchmarks/bench.py", [], ""),
        ("model_config/README.md", [], ""),
    ],
)
def test_change_selects_dependent_cases(repo: Repo, file: str, touched: list[str], why: str) -> None:
    repo.write(file, "# changed\n" + FILES.get(file, ""))
    found = repo.changed()
    assert found == dict.fromkeys(touched, f"{file} changed, {why}")


def delete(repo: Repo) -> None:
    (repo.root / "utils/codec.py").unlink()


def move(repo: Repo) -> None:
    repo.git("mv", "utils/codec.py", "utils/coding.py")


def edit(repo: Repo) -> None:
    repo.write("utils/codec.py", "x = 1\n")


@pytest.mark.parametrize("change", [delete, move, edit])
@pytest.mark.parametrize("state", ["uncommitted", "staged", "committed"])
def test_staged_unstaged_and_committed_changes(repo: Repo, change: Callable[[Repo], None], state: str) -> None:
    repo.git("switch", "-q", "-c", "branch")
    change(repo)
    if state != "uncommitted":
        repo.git("add", "-A")
    if state == "committed":
        repo.commit("second")
    assert repo.changed() == {"alpha": "utils/codec.py changed, which its scripts use"}


def test_later_commits_of_other_branch_are_ignored(repo: Repo) -> None:
    repo.git("switch", "-q", "-c", "branch")
    repo.git("switch", "-q", "main")
    repo.write("engine/base.py", "# later\n")
    repo.commit("on main")
    repo.git("switch", "-q", "branch")
    assert repo.changed() == {}
    repo.write("contrib/utils/extra.py", "# ours\n")
    repo.write("contrib/utils/more.py", "# ours\n")
    assert list(repo.changed()) == ["gamma"]


def test_only_changed_entries_are_selected(repo: Repo) -> None:
    repo.write("model_config/model.yaml", "# a comment\n" + (repo.root / "model_config/model.yaml").read_text())
    assert repo.changed() == {}
    repo.entries[1]["accuracy"] = {"tolerance": 0.002}
    new = repo.entry("delta", "example/x/alpha")
    repo.describe([new, repo.entries[1], repo.entries[0]], "model_config/model.yaml")
    assert repo.changed() == {
        "delta": "its entry in model_config/model.yaml is new",
        "beta": "its entry in model_config/model.yaml changed",
    }


def test_several_changes_are_counted(repo: Repo) -> None:
    for name in ("valid.py", "helper.py", "new.py"):
        repo.write(f"example/x/beta/{name}", "# new\n")
    repo.write(".gitignore", "*.onnx\n")
    repo.write("example/x/alpha/m.onnx", "ignored")
    assert repo.changed() == {"beta": "example/x/beta/helper.py and 2 more changed, in its folder"}


def test_a_repository_inside_another_works_from_its_own_folder(repo: Repo, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    (repo.root / ".git").rename(outer / ".git")
    repo.root.rename(outer / "zoo")
    repo.root = outer
    repo.commit("moved")
    repo.root = outer / "zoo"
    repo.write("utils/codec.py", "x = 1\n")
    repo.write("../utils/codec.py", "not of the zoo\n")
    assert repo.changed() == {"alpha": "utils/codec.py changed, which its scripts use"}


def test_invalid_revision(repo: Repo, tmp_path: Path) -> None:
    for rev in ("nowhere", "", "--output=x", "HEAD:README.md", "a b; c"):
        with pytest.raises(ConfigError, match=r"no such commit in .*git fetch") as caught:
            repo.changed(rev)
        assert len(str(caught.value).splitlines()) == 1
    cases = repo.cases()
    with pytest.raises(ConfigError, match=r"not a git repository"):
        changed_cases(cases, "main", tmp_path)


def test_shallow_clone_error_has_fix(repo: Repo, tmp_path: Path) -> None:
    repo.write("utils/text.py", "# second\n")
    repo.commit("second")
    first = repo.git("rev-parse", "HEAD~1").strip()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repo.root}", str(clone)], check=True)  # noqa: S607
    with pytest.raises(ConfigError, match="git fetch --unshallow"):
        changed_cases(repo.cases(), first, clone)


def test_unrelated_histories(repo: Repo) -> None:
    repo.git("switch", "-q", "--orphan", "other")
    repo.git("commit", "-q", "--allow-empty", "-m", "alone")
    repo.git("switch", "-q", "main")
    with pytest.raises(ConfigError, match=r"no commit in common.*--unshallow"):
        repo.changed("other")


def test_relative_imports_links_and_invalid_files(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    repo.write("utils/sub/__init__.py", "from . import near\nfrom ..text import x\nfrom .. import codec\n")
    repo.write("utils/sub/near.py", "import utils.sub\n")
    repo.write("utils/broken.py", "def (:\n")
    repo.write("utils/top.py", "import utils.sub.missing, utils.broken, not_installed, os.path\n")
    (repo.root / "utils/linked.py").symlink_to("top.py")
    found = Imports(repo.root).closure(["utils/linked.py", "gone.py"], [""])
    python = {f"utils/{name}.py" for name in ("__init__", "linked", "top", "broken", "text", "codec")}
    assert found == python | {"utils/sub/__init__.py", "utils/sub/near.py"}


def test_import_graph_contains_loaded_modules(tmp_path: Path) -> None:
    """Every module of the repository that a real run has loaded must be in the graph."""
    (case,) = (case for case in load_cases([ROOT / "model_config/model.yaml"]) if case.name == "digits")
    found = Imports(ROOT).of_case(case)
    code = (
        "import runpy, sys\ntry:\n    runpy.run_path(sys.argv[0], run_name='__main__')\nexcept SystemExit: pass\n"
        "for module in list(sys.modules.values()):\n    print('loaded', getattr(module, '__file__', None))\n"
    )
    single = next(step for step in case.steps if step.name == "single")
    folder = ROOT / case.run_dir
    words = [f"sys.argv = {[str(folder / single.run_file), *single.arguments]!r}", code]
    ran = subprocess.run(
        [sys.executable, "-c", "import sys\n" + "\n".join(words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {Path(line.removeprefix("loaded ")) for line in ran.stdout.splitlines() if line.startswith("loaded /")}
    own = {path.relative_to(ROOT).as_posix() for path in loaded if path.is_relative_to(ROOT)}
    assert len(own) > 20
    assert {name for name in own if name.startswith(("engine/", "utils/", "example/"))} <= found
    assert "engine/sdaa/t1.yaml" in found
    assert "engine/passes/default_pass.py" in found
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in found)
    assert "utils/preprocess/paddle/classification.py" not in found
