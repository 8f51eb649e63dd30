"""Output of a search: checks of the folder, and the finished runs after an interrupt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import DataError
from tecoinfer_modelzoo.files import write_file
from utils.pipeline.run.interrupt import telling

if TYPE_CHECKING:
    from toolkit.fix.trials import Trial, Trials


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert OSError to DataError: the folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from error


def prepare_folder(folder: Path) -> None:
    """Create a folder and test, before a search, that it is writable; raise DataError if not."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def trials_as_json(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return runs as JSON data."""
    pairs = ((trial, trial.accuracy) for trial in trials)
    return [
        {"what": run.what, "nodes": len(run.names), "metric": found.metric, "verdict": found.verdict.value}
        for run, found in pairs
    ]


@contextmanager
def saving_on_interrupt(trials: Trials, path: Path) -> Iterator[None]:
    """Write the finished runs to a JSON file if Ctrl-C ends the ``with`` block, and print its path."""

    def how_far() -> str:
        enough = [trial.names for trial in trials.ran[1:] if trials.enough(trial)]
        best = min(enough, key=len) if enough else ()
        head = {"schema_version": 1, "interrupted": True, "metric": trials.metric, "baseline": trials.baseline}
        text = json.dumps({**head, "smallest_that_passes": list(best), "trials": trials_as_json(trials.ran)}, indent=1)
        write_file(path, text.encode())
        enough_so_far = f"; {len(best)} nodes are enough so far" if best else ""
        return f"after {len(trials.ran)} runs{enough_so_far}; they are in {path}"

    with telling(how_far):
        yield
