"""Copies the models of the clone into the wheel: those that are small and that may be redistributed.

A model's folder is left out if it is too large (LARGEST, LARGER), if ``docs/data.yaml`` does not permit to redistribute
a file in it, or if it reads data of a folder that is left out. The cases of the others, and their rows of
``docs/data.yaml``, are copied too.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
CLONE = HERE.parents[1]
PACKAGE = "tecoinfer_modelzoo_models"
SCRIPTS = ("example_valid.py", "example_single_batch.py", "example_multi_batch.py")
LARGEST = 4_000_000
"""Maximum size of a model's folder in bytes."""
LARGER = ("example/detection/digit_detector",)
"""Larger folders that are taken: trained models of a domain that would have none."""
CASES, TABLE = "model_config/model.yaml", "docs/data.yaml"


def files_of_clone() -> list[str]:
    """Return the files in ``example/`` that belong to the repository, relative to its root."""
    if not (CLONE / "example").is_dir() or not (CLONE / CASES).is_file():
        sys.exit(
            f"error: {CLONE} is not a clone of the zoo, whose models this package takes; build it in packages/models"
        )
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "example"]
    try:
        listed = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive of the repository
        listed = [path.relative_to(CLONE).as_posix() for path in (CLONE / "example").rglob("*")]
    return sorted(name for name in listed if name and "__pycache__" not in name and (CLONE / name).is_file())


def selected(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the files of each model that is taken, by its folder: ``example/DOMAIN/MODEL``."""
    folders: dict[str, list[str]] = {}
    for name in files_of_clone():
        folders.setdefault("/".join(name.split("/")[:3]), []).append(name)
    refused = [pattern for row in rows if "redistribute" not in row["use"] for pattern in row.get("files", ())]
    chosen: dict[str, list[str]] = {}
    for folder, names in folders.items():
        is_model = any(f"{folder}/{script}" in names for script in SCRIPTS)
        size = sum((CLONE / name).stat().st_size for name in names)
        small = size <= LARGEST or folder in LARGER
        if is_model and small and not any(pattern.startswith(f"{folder}/") for pattern in refused):
            chosen[folder] = names
    needs = {folder: folders_read(folder, names) for folder, names in chosen.items()}
    while lacking := [folder for folder in chosen if not needs[folder] <= chosen.keys()]:
        for folder in lacking:
            del chosen[folder]
    return chosen


def folders_read(folder: str, names: list[str]) -> set[str]:
    """Return the other models' folders with data that a model's scripts read: ``../resnet/images``."""
    texts = [(CLONE / name).read_text(encoding="utf-8") for name in names if name.endswith(".py")]
    words = {word for text in texts for word in re.findall(r"(?<![\w./-])\.\./[\w./-]*\w", text)}
    paths = {os.path.normpath(f"{folder}/{word}") for word in words if (CLONE / folder / word).exists()}
    parts = [path.split("/") for path in paths]
    return {"/".join(one[:3]) for one in parts if one[0] == "example" and len(one) > 3} - {folder}


def cases_of(folders: set[str]) -> str:
    """Return the text of the cases of these folders, with the comments before each."""
    text = (CLONE / CASES).read_text(encoding="utf-8")
    head, *entries = re.split(r"^(?=(?:#.*\n)*- case_name:)", text, flags=re.MULTILINE)
    kept = [entry for entry in entries if _run_dir(entry) in folders]
    return "".join([head, *kept])


def _run_dir(entry: str) -> str:
    found = re.search(r"^\s+run_dir:\s*(?:TecoInference/)?(\S+)", entry, re.MULTILINE)
    return found[1] if found else ""


def rows_of(folders: set[str], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with files in these folders, with only these files."""
    kept = []
    for row in rows:
        files = [one for one in row.get("files", ()) if "/".join(PurePosixPath(one).parts[:3]) in folders]
        if files:
            kept.append({**row, "files": files})
    return kept


def licences(rows: list[dict[str, Any]]) -> str:
    """Return the page of the licences of data and weights."""
    lines = ["# Licences of the data and weights", "", "The code is under Apache-2.0.", ""]
    for row in rows:
        lines += [f"## {row['what']}", "", f"- files: {', '.join(row['files'])}", f"- source: {row['from']}"]
        lines += [f"- licence: {row['licence']}, read in {row['read_in']}", f"- permitted use: {row['use']}"]
        lines += [f"- attribution: {row['attribution']}", ""] if row.get("attribution", "–") != "–" else [""]
    return "\n".join(lines)


class BuildWithModels(build_py):
    """Writes the models beside the package's own module."""

    def run(self) -> None:
        """Build the package, then copy the models."""
        super().run()
        place = Path(self.build_lib, PACKAGE)
        for name in ("example", "model_config", "docs"):
            shutil.rmtree(place / name, ignore_errors=True)  # of an earlier build
        rows = yaml.safe_load((CLONE / TABLE).read_text(encoding="utf-8"))
        models = selected(rows)
        for name in (name for names in models.values() for name in names):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CLONE / name, place / name)
        own = rows_of(set(models), rows)
        texts = {CASES: cases_of(set(models)), TABLE: yaml.safe_dump(own, allow_unicode=True, sort_keys=False)}
        for name, text in (texts | {"LICENSES.md": licences(own)}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithModels})
