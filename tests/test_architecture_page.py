"""``docs/explanation/architecture.md`` agrees with the source: layers, packages, and the files a sample passes."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest
from source_imports import forget_trees, graph_of, python_files, tree  # noqa: F401 - a fixture
from support import ROOT, RunPython
from test_architecture import FLOORS

PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [package for package, floor in FLOORS.items() if floor < FLOORS["example"]]
FILES = python_files(*PACKAGES)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> set[str]:
    """Return what a cell has between backticks."""
    return set(re.findall(r"`([^`]+)`", cell))


def room_of(module: str) -> str:
    """Return the folder that a module is a part of: a package, or a package of one."""
    folder = "/".join(module.split(".")[:2])
    return folder if (ROOT / folder / "__init__.py").is_file() else module.split(".")[0]


@cache
def imported_rooms() -> dict[str, set[str]]:
    """Return room -> the other rooms that it imports, the faces' own tables left out."""
    found: dict[str, set[str]] = {}
    for module, targets in graph_of([name for name in FILES if name != "engine/__init__.py"]).items():
        own = found.setdefault(room_of(module), set())
        own |= {room_of(target) for target in targets} - {room_of(module)}
    return found


def test_layers_on_the_page_match_the_imports() -> None:
    said = {}
    for floor, packages, _, below in rows("Floors"):
        for package in names(packages):
            said[package.rstrip("/")] = (int(floor), {name.rstrip("/") for name in names(below)})
    assert {package: floor for package, (floor, _) in said.items()} == FLOORS
    for package in PACKAGES:
        real = {
            other.split("/")[0]
            for room, others in imported_rooms().items()
            for other in others
            if room.split("/")[0] == package
        }
        always = {name for name in ("tecoinfer_modelzoo", "engine") if FLOORS[name] < FLOORS[package]}
        assert said[package][1] == real - {package} | always, package


def test_every_package_is_on_the_page() -> None:
    said = [room for cells in rows("Rooms") for room in names(cells[0])]
    folders = {room_of(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")) for name in FILES}
    assert sorted(room.rstrip("/") for room in said) == sorted(folders)
    assert not [cells[0] for cells in rows("Rooms") if not cells[1]]


def _cell(room: str) -> str:
    """Return the expected text of a folder's imports from its package."""
    package = room.split("/")[0]
    own = sorted(
        other.removeprefix(f"{package}/") for other in imported_rooms()[room] if other.split("/")[0] == package
    )
    return " ".join(f"`{name}`" for name in sorted(own, key=lambda name: name != package))


def test_package_imports_match_the_page() -> None:
    said = {room.rstrip("/"): cells[2] for cells in rows("Rooms") for room in names(cells[0])}
    wrong = [f"{room}: {said[room]} is to be {_cell(room)}" for room in said if said[room] != _cell(room)]
    assert wrong == []


def test_steps_of_a_sample_name_existing_code() -> None:
    """Each step names a file, and something defined there."""
    steps = rows("Processing of a sample")
    assert len(steps) > 8
    missing = [where for cells in steps for where in names(cells[2]) if not _is_there(where)]
    assert not missing


@pytest.mark.slow
def test_steps_of_a_sample_are_in_order(run_python: RunPython, tmp_path: Path) -> None:
    """Prefetching starts before the walk."""
    done = run_python("benchmarks/sample_walk.py", "--json", str(tmp_path / "walk.json"))
    assert done.returncode == 0, done.stderr
    walk = json.loads((tmp_path / "walk.json").read_text())["order"]
    steps = rows("Processing of a sample")
    begin = [cells[0] for cells in steps].index("prepare")
    cells = [where.split(":")[0] for row in steps[begin:] for where in re.findall(r"`([^`]+)`", row[2])]
    met = [file for file in dict.fromkeys(cells) if file in walk]
    assert len(met) > 8
    assert met == sorted(met, key=walk.index)


def _is_there(where: str) -> bool:
    file, _, name = where.partition(":")
    if not (ROOT / file).is_file():
        return False
    defined = {node.name for node in ast.walk(tree(file)) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return name in defined


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 130
    assert not [
        link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if not Path(ROOT, "docs/explanation", link).exists()
    ]
