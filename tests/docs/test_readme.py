"""READMEs and docs/: names and commands are valid."""

from __future__ import annotations

import pkgutil
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from engine.registry import _BUILTIN
from engine.tecoinfer_pytorch import TecoInferEngine
from model_config.reports.zoo_tables import SELECTED
from model_config.structure import FILE_RULES, SHARED_RULES, rules

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("README.md", "README.zh-CN.md")
ZOO = ("docs/reference/zoo.md", "docs/reference/zoo.zh-CN.md")
ENGINES, MODELS, SETTINGS = "docs/reference/engines.md", "docs/how-to/models.md", "docs/reference/configuration.md"
MADE_UP = {"utils.metrics.mase", "utils.postprocess.pytorch.mine", "benchmarks/results/", "model_config.yaml"}
"""What pages name though it is not in a clone: a contributor's module, what a benchmark writes, a file of NeMo."""
OWN_ENGINE = "docs/how-to/adding_an_engine.md"
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (
        "",
        "docs/*/",
        "benchmarks/",
        "contrib/",
        "contrib/*/",
        "example/",
        "model_config/",
        "tecoexec/",
        "tecoexec/*/",
    )
    for page in ROOT.glob(f"{folder}*.md")
)

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


def commands(block: str) -> list[list[str]]:
    """Return the words of every command line of a block, without its comments; continued lines are one."""
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def links(name: str) -> list[str]:
    """Return the targets of the links of a page."""
    return re.findall(r"\]\(([^)]+)\)", _prose(name))


def test_the_readme_is_short() -> None:
    for name in LANGUAGES:
        assert len(text(name).splitlines()) <= 120
        assert len(re.findall(r"^\| \[\w+\]\(example/", text(name), re.MULTILINE)) == len(SELECTED) <= 12
    installs = re.findall(r"^pip install.*", text(), re.MULTILINE)
    assert [" && python " in line for line in installs[:2]] == [True, True]  # .ci/run runs the first two


def test_every_page_is_linked_from_the_readme() -> None:
    """test_twins.py compares the links of both READMEs, and finds the pages in Chinese."""
    linked = {link.partition("#")[0] for link in links("README.md")}
    pages = {name for name in PAGES if name.startswith("docs/") and not name.endswith(".zh-CN.md")}
    assert pages - linked == {
        "docs/reference/classification_models.md",
        "docs/reference/model_sweep.md",
        "docs/reference/tvm_models.md",
    }  # linked from other pages


def test_the_chinese_page_is_chinese_and_has_one_word_for_one_thing() -> None:
    comments = [line.partition("# ")[2] for block in blocks("bash", "README.zh-CN.md") for line in block.splitlines()]
    assert all(re.search(r"[\u4e00-\u9fff]", comment) for comment in comments if comment)
    chinese = text("README.zh-CN.md")
    assert "评测" in chinese  # evaluation
    assert not re.findall("评估|评价|测评", chinese)
    assert not re.findall(r"(?<!优化 )\bpass\b|优化文件|优化遍", chinese)  # an optimisation pass is 优化 pass


def test_the_tables_of_the_zoo_have_every_model() -> None:
    for name in ZOO:
        rows = [line.split(" | ")[0] for line in text(name).splitlines() if line.startswith("| [")]
        listed = [link for row in rows for link in re.findall(r"\[\w+\]\(\.\./\.\./(example/[^)]+)\)", row)]
        assert sorted(listed) == sorted(
            str(path.with_name("README.md").relative_to(ROOT)) for path in ROOT.glob("example/*/*/example_valid.py")
        )


def test_the_glossary_has_every_term_once_in_both_languages() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", text("docs/reference/glossary.md"), re.MULTILINE)
    terms = [row for row in rows if row[0] != "English"]
    assert len(terms) > 40
    for column in (0, 1):
        names = [row[column] for row in terms]
        assert sorted(set(names)) == sorted(names)
    for _, _, meaning in terms:
        english, _, chinese = meaning.partition(" · ")
        assert re.search("[a-z]", english), meaning
        assert re.search(r"[\u4e00-\u9fff]|float32", chinese), meaning


def _prose(name: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text(name), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_every_file_and_module_it_names_is_there(name: str) -> None:
    """Only in the text: what a code block names may be made by the commands before it."""
    folders = "engine|utils|toolkit|model_config|tecoexec|benchmarks|tests"
    prose = re.sub(r"^<!--.*$", "", _prose(name), flags=re.MULTILINE)
    for path in re.findall(rf"`((?:{folders}|docs|example)/[\w./-]+\.\w+|(?:{folders})/[\w/]+)`", prose):
        there = ROOT / path if "NAME" not in path else (ROOT / path).parent  # such as engine/backends/NAME.py
        assert path in MADE_UP or there.exists(), f"{name}: {path}"
    for dotted in re.findall(rf"`((?:{folders})(?:\.[a-zA-Z_]\w*)+)`", prose):
        assert dotted in MADE_UP or _resolves(dotted), f"{name}: {dotted}"


def _resolves(dotted: str) -> bool:
    """Say whether a dotted name is a module, or something in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


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
    shown = commands(blocks("bash")[2])[:3]
    assert [Path(command[1]).name for command in shown] == [
        "example_valid.py",
        "example_single_batch.py",
        "example_multi_batch.py",
    ]
    for python, *arguments in shown:
        assert python == "python"
        done = run_python(*arguments)
        assert done.returncode == 0, done.stderr


def test_the_tables_name_every_target_and_variable() -> None:
    for page in ("README.md", ENGINES):
        assert {cell for cell in first_cells(page) if cell.islower()} == set(_BUILTIN)
    sources = [path for folder in ("engine", "utils") for path in (ROOT / folder).rglob("*.py")]
    read = re.compile(r"\b(?:MAX_ENGINE_NUMS|(?:OMPI|TECO|SDAA)_[A-Z_]+[A-Z])\b")
    used = {name for path in sources for name in read.findall(path.read_text(encoding="utf-8"))}
    assert used <= {cell for cell in first_cells(SETTINGS) if cell.isupper()}


def test_the_rules_of_structure_are_those_of_the_check() -> None:
    shared = {name: "only" if name in SHARED_RULES else "yes" for name in (*FILE_RULES, *SHARED_RULES)}
    rows = re.findall(r"^\| `([\w-]+)` \| (.+\.) \| *(\w*) *\|$", text("model_config/README.md"), re.MULTILINE)
    assert rows == [(rule.name, rule.description.replace("``", "`"), shared.get(rule.name, "")) for rule in rules()]


def test_every_historical_keyword_is_taken() -> None:
    taken = TecoInferEngine.__init__.__annotations__
    named = re.search(r"historical keyword \((.*?)\)", text(MODELS), re.DOTALL)
    assert named is not None
    for keyword in re.findall(r"`(\w+)`", named.group(1)):
        assert keyword in taken


def test_the_engine_of_your_own_runs(run_python: Run, tmp_path: Path) -> None:
    """Installed as pip would leave it: a module and a distribution's metadata."""
    (tmp_path / "reference_engine.py").write_text(blocks("python", OWN_ENGINE)[0], encoding="utf-8")
    info = tmp_path / "my_engines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-engines\nVersion: 1.0\n", encoding="utf-8")
    name, _, value = blocks("toml", OWN_ENGINE)[0].splitlines()[1].partition(" = ")
    (info / "entry_points.txt").write_text(f"[tecoinfer.engines]\n{name} = {value.strip(chr(34))}\n", encoding="utf-8")
    script = "example/classification/digits/example_single_batch.py"
    done = run_python(script, "--target", "reference", path=[ROOT, tmp_path])
    assert done.returncode == 0, done.stderr
    assert "0081.png  7  0.898" in done.stdout
    assert "my-engines" in done.stdout
