"""The READMEs promise nothing that does not work, and the two languages say the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from engine.registry import _BUILTIN
from engine.tecoinfer_pytorch import TecoInferEngine

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("README.md", "README.zh-CN.md")
PAGES = [*LANGUAGES, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/performance.md"]

Run = Callable[..., "CompletedProcess[str]"]


def text(name: str = "README.md") -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(language: str, name: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(name), re.MULTILINE | re.DOTALL)


def first_cells(name: str) -> list[str]:
    """Return the words in code style in the first cell of every table row: targets and variables."""
    return [
        word for row in re.findall(r"^\|([^|]+)\|", text(name), re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    ]


def test_both_languages_have_the_same_blocks_tables_and_links() -> None:
    english, chinese = (text(name) for name in LANGUAGES)
    for language in ("bash", "python", "toml", "text"):
        assert blocks(language) == blocks(language, "README.zh-CN.md")
    assert first_cells("README.md") == first_cells("README.zh-CN.md")
    own = re.compile(r"\]\(README[^)]*\)")
    links = [re.findall(r"\]\(([^)]+)\)", own.sub("", page)) for page in (english, chinese)]
    assert links[0] == links[1]
    assert [len(re.findall(mark, page, re.MULTILINE)) for page in (english, chinese) for mark in (r"^## ", r"^\|")] == [
        *(len(re.findall(mark, english, re.MULTILINE)) for mark in (r"^## ", r"^\|")),
    ] * 2


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text(name)):
        if not link.startswith("https://"):
            assert (ROOT / name).parent.joinpath(link).exists(), f"{name}: {link}"


def test_the_first_command_ends_with_the_two_lines(run_python: Run) -> None:
    install, _, script = blocks("bash")[0].strip().partition(" && python ")
    assert install == "pip install -c constraints.txt -e ."
    done = run_python(*shlex.split(script))
    assert done.returncode == 0, done.stderr
    metric, summary = done.stdout.splitlines()[-2:]
    shown = blocks("text")[0].splitlines()
    assert metric == shown[0]
    assert re.sub(r"[\d.]+", "N", summary) == re.sub(r"[\d.]+", "N", shown[1])


def test_the_scripts_run_as_shown(run_python: Run) -> None:
    commands = [shlex.split(line, comments=True) for line in blocks("bash")[2].splitlines()]
    assert [Path(command[1]).name for command in commands] == [
        "example_valid.py",
        "example_single_batch.py",
        "example_multi_batch.py",
    ]
    for python, *arguments in commands:
        assert python == "python"
        done = run_python(*arguments)
        assert done.returncode == 0, done.stderr


def test_the_tables_name_every_target_and_variable() -> None:
    cells = first_cells("README.md")
    assert {cell for cell in cells if cell.islower()} == set(_BUILTIN)
    sources = [path for folder in ("engine", "utils") for path in (ROOT / folder).rglob("*.py")]
    read = re.compile(r"\b(?:MAX_ENGINE_NUMS|(?:OMPI|TECO|SDAA)_[A-Z_]+[A-Z])\b")
    used = {name for path in sources for name in read.findall(path.read_text(encoding="utf-8"))}
    assert used <= {cell for cell in cells if cell.isupper()}


def test_every_historical_keyword_is_taken() -> None:
    taken = TecoInferEngine.__init__.__annotations__
    named = re.search(r"historical keyword \((.*?)\)", text(), re.DOTALL)
    assert named is not None
    for keyword in re.findall(r"`(\w+)`", named.group(1)):
        assert keyword in taken


def test_the_engine_of_your_own_runs(run_python: Run, tmp_path: Path) -> None:
    """Installed as pip would leave it: a module and a distribution's metadata."""
    (tmp_path / "reference_engine.py").write_text(blocks("python")[0], encoding="utf-8")
    info = tmp_path / "my_engines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-engines\nVersion: 1.0\n", encoding="utf-8")
    name, _, value = blocks("toml")[0].splitlines()[1].partition(" = ")
    (info / "entry_points.txt").write_text(f"[tecoinfer.engines]\n{name} = {value.strip(chr(34))}\n", encoding="utf-8")
    script = "example/classification/digits/example_single_batch.py"
    done = run_python(script, "--target", "reference", path=[ROOT, tmp_path])
    assert done.returncode == 0, done.stderr
    assert "0081.png  7  0.898" in done.stdout
    assert "my-engines" in done.stdout
