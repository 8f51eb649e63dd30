"""docs/reference/data.md equals the tables, which list every committed data or weight file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT

from engine import ConfigError
from toolkit.data_page import PAGE, page, sources, write_page
from utils.fetch.table import read_table

EVERYWHERE = (".onnx", ".pth", ".pt", ".npz", ".npy", ".parquet", ".safetensors", ".bin", ".h5", ".pkl")
"""What is data wherever it lies."""

IMAGES, SOUNDS, TEXTS = (".png", ".jpg", ".jpeg", ".bmp"), (".wav", ".flac"), (".csv", ".tsv", ".json", ".jsonl")
IN_MODELS = (*EVERYWHERE, *IMAGES, *SOUNDS, *TEXTS, ".gz", ".zip", ".sdf")
"""What is data in the folder of a model."""


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / PAGE).read_text(encoding="utf-8")
    assert written == page(ROOT), "run: teco fetch --write_docs"


def test_the_page_has_every_package_and_every_source() -> None:
    text = page(ROOT)
    for package in read_table(ROOT / "utils" / "fetch" / "packages.yaml"):
        assert f"| `{package.name}` | {package.what} |" in text
        assert package.sha256[:12] in text
    for source in sources(ROOT):
        assert source.what in text


def test_every_committed_file_has_a_row() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        pytest.skip("no clone of git")
    covered = {path for source in sources(ROOT) for pattern in source.files for path in ROOT.glob(pattern)}
    wanted = [name for name in done.stdout.split("\0") if _is_data(name)]
    assert len(wanted) > 300
    assert [name for name in wanted if ROOT / name not in covered] == [], "add a row to docs/data.yaml"


def _is_data(name: str) -> bool:
    if not (ROOT / name).is_file():
        return False
    in_model = re.fullmatch(r"(contrib/)?example/[^/]+/[^/]+/(?P<rest>.+)", name)
    if in_model is None:
        return name.endswith(EVERYWHERE)
    below = "/" in in_model["rest"] and not name.endswith((".py", ".md"))  # such as data/sentences.txt
    return below or name.endswith(IN_MODELS) or (name.endswith(".txt") and not name.endswith("requirements.txt"))


def test_every_used_package_has_a_row() -> None:
    known = {package.name for package in read_table(ROOT / "utils" / "fetch" / "packages.yaml")}
    places = [
        path
        for place in ("example", "model_config", "utils", "toolkit", "benchmarks")
        for path in (ROOT / place).rglob("*")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in places if path.suffix in (".py", ".yaml", ".md")}
    named = {
        (found, str(path.relative_to(ROOT)))
        for path, text in texts.items()
        for names in re.findall(r"\bfetch:([a-z0-9_]+)/|\bfetched\(\"([a-z0-9_]+)\"|teco fetch ([a-z0-9_]+)", text)
        for found in names
        if found
    }
    assert len({name for name, _ in named}) > 10
    assert sorted((name, path) for name, path in named if name not in known) == []


ROW = "- what: mine\n  from: me\n  licence: MIT\n  read_in: LICENSE\n  use: all\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "contrib").mkdir()
    (tmp_path / "docs" / "data.yaml").write_text(ROW)
    return tmp_path


def test_contrib_rows_are_last(clone: Path) -> None:
    (clone / "example").mkdir()
    (clone / "example" / "x.bin").write_bytes(b"x")
    (clone / "contrib" / "data.yaml").write_text(ROW.replace("mine", "theirs") + "  files: [example/*.bin]\n")
    assert [source.what for source in sources(clone)] == ["mine", "theirs"]
    assert "| `example/*.bin` | theirs | me | MIT: LICENSE | – | all |" in write_page(clone).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ROW + "  files: [gone/*.bin]\n", ":1: 'gone/*.bin' matches no file"),
        (ROW + "  files: gone\n", ":1: files 'gone' is not a list"),
        (ROW + "  licens: x\n", ":1: unknown key 'licens'; did you mean 'licence'?"),
        (ROW.replace("  use: all\n", ""), ":1: missing key 'use'; add it"),
        (ROW.replace("MIT", "2"), ":1: licence 2 "),
    ],
)
def test_mistakes(text: str, line: str, clone: Path) -> None:
    path = clone / "docs" / "data.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        sources(clone)
    assert str(error.value).startswith(f"{path}{line}")


def test_folder_without_docs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_page(tmp_path)
