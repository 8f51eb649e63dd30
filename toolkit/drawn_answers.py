"""``teco site --draw``: run models on a sample of their data, and store the answers for the page of the zoo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine import DataError, TecoInferError
from model_config.cases.config import Case, Command
from model_config.judge.scorecard import NUMERICS, hash_models, version
from model_config.reports.answers import FILE, Answer, write_answer
from model_config.reports.described import read_described
from tecoinfer_modelzoo import python_path
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import one_line, shortened
from toolkit.zoo import Model
from utils.datasets.folders import EXTENSIONS
from utils.fetch import kept_path

LIMIT = 300.0
"""Seconds after which a model is given up; the slowest needs about ten."""

_LONGEST = 600  # characters of a sample's or an answer's text that are stored


def drawable(models: Sequence[Model]) -> list[Model]:
    """Return the models with stored metrics whose files are here: nothing is exported or downloaded for them."""
    return [model for model in models if (model.folder / NUMERICS).is_file() and _step(model) is not None]


def draw(models: Sequence[Model]) -> Iterator[str]:
    """Run each model on a sample of its data set, as its case does, and store the answer in its folder.

    The sample is the first, or the one that ``shown_sample`` in the model's ``zoo.yaml`` names.

    Yields:
        A line per model: the file that was written, or why none was.
    """
    for model in models:
        try:
            yield f"{_draw(model)}: written"
        except TecoInferError as error:
            yield f"warning: {model.path}: no answer drawn: {one_line(error)}"


def _step(model: Model) -> tuple[Case, Command] | None:
    """Return the first case with a valid step whose model files and data are here."""
    for case, step in model.steps():
        places = [*step.ckpts.values(), *step.data_paths.values()]
        if step.name == "valid" and all(kept_path(model.folder, place).exists() for place in places):
            return case, step
    return None


def _draw(model: Model) -> Path:
    """Return the file; raise DataError if the model cannot be run, ConfigError if the file cannot be written."""
    found = _step(model)
    if found is None:
        raise DataError("its model files or data are missing; run its export, or teco fetch")
    case, step = found
    with tempfile.TemporaryDirectory(prefix="teco-site-") as work:
        entry = _run(model, step, Path(work))
        file = entry.get("file")
        drawn = Path(work, file) if isinstance(file, str) and Path(file).suffix.lower() in EXTENSIONS else None
        answer = Answer(
            case.name,
            str(step.params["target"]),
            str(step.params["dtype"]),
            hash_models(model.folder, step.ckpts),
            shortened(one_line(entry.get("sample") or ""), _LONGEST, end=False),
            shortened(one_line(entry.get("text") or ""), _LONGEST, end=False),
        )
        write_answer(model.folder, answer, drawn, f"teco site {version('tecoinfer-modelzoo')}")
    return model.folder / FILE


def _run(model: Model, step: Command, work: Path) -> dict[str, Any]:
    """Return the entry of the sample in the script's JSON."""
    described = read_described(model.folder)
    sample = str(described.shown_sample if described is not None else 0)
    result = work / "answers.json"
    flags = ["--show", sample, "--save", str(work), "--json", str(result)]
    command = [sys.executable, step.run_file, *step.arguments, *flags]
    environment = {**os.environ, "PYTHONPATH": python_path(model.root)}
    try:
        done = subprocess.run(
            command, cwd=model.folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{step.run_file} took more than {LIMIT:g} s") from error
    try:
        entry = json.loads(text_of(result))["answers"][0]
    except (OSError, ValueError, LookupError, TypeError) as error:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise DataError(f"{step.run_file}: {last}") from error
    return dict(entry)
