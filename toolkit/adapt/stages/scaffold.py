"""The model's folder and its case, first without figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tecoinfer_modelzoo.files import hash_files
from toolkit.adapt.folder import Written, folder_name, write_folder
from toolkit.adapt.running import FORMS_FOLDER
from toolkit.adapt.sources import find_source
from toolkit.adapt.sources.base import run_script
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.export import SCRIPT
from toolkit.adapt.work import NOTED, Outcome, Work
from utils.fetch.weights import url_problem

FOUND = ("onnx", "sdaa", "targets", "passes", "tecoexec")
"""Stages whose results are in the README and the case."""


class Scaffold(Stage):
    """Write the folder, and export again with its script."""

    name, title, needs = "scaffold", "scaffold", ("take_in", "export", "task", "data")

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """Where the folder is, and whether somebody removed files."""
        place = work.request.root / folder_name(work)
        return work.request.part("contrib", "batch", "weights_url") | {"script": (place / SCRIPT).is_file()}

    def run(self, work: Work) -> Outcome:
        """Return the folder, and whether its export script makes the same files again."""
        found = write_folder(work)
        again = _same_files(work, found)
        line = f"{found.folder}: {len(found.files)} files; case {work.request.name!r} in {found.config}; {again}"
        problem = _url_problem(work)
        made = outcome(line + (f"; --weights_url is not verified: {problem}" if problem else ""), found)
        return replace(made, status=NOTED, notes=[*made.notes, problem]) if problem else made


def outcome(line: str, found: Written) -> Outcome:
    """Return the outcome of a stage that writes the folder: kept files and open questions are named."""
    line += f"; kept as edited: {', '.join(found.kept)}" if found.kept else ""
    line += f"; {len(found.open)} questions are open in its README" if found.open else ""
    facts = {"folder": found.folder, "config": found.config, "open": found.open, "kept": found.kept}
    status = NOTED if found.open or found.kept else "done"
    return Outcome(line, facts, notes=[*found.open, *found.kept], status=status)


def _url_problem(work: Work) -> str:
    """Return why ``--weights_url`` does not give the weights; empty if it does, or is not given."""
    url = work.request.weights_url
    if not url:
        return ""
    plan = find_source(work.request.model).export(work)
    return url_problem(url, plan.bytes, hash_files(plan.files[plan.weights]))


def _same_files(work: Work, found: Written) -> str:
    """Run the folder's export script, and compare its files with the first ones."""
    folder, export = work.request.root / found.folder, work.facts("export")
    forms = list(export["forms"])
    words = [word for key, value in export["params"].items() for word in (f"--{key}", str(value))]
    code, _, error = run_script(folder / SCRIPT, [*words, "--forms", *forms], work.request.root)
    if code:
        return f"{SCRIPT} failed: {error}"
    first = work.folder / FORMS_FOLDER
    other = [name for name in export["forms"].values() if _content(folder / name) != _content(first / name)]
    return f"{SCRIPT} makes other files: {', '.join(other)}" if other else f"{SCRIPT} makes the same files again"


def _content(file: Any) -> str:
    from engine.onnx import file_hash

    return file_hash(file) if file.is_file() else ""
