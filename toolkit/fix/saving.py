"""What must not be lost: the runs of a search that is interrupted, and a search whose files cannot be written."""

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
    """Turn what the disk refuses into one line.

    Raises:
        DataError: the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from error


def prepare_folder(folder: Path) -> None:
    """Make a folder and try it, before a search begins.

    Raises:
        DataError: it cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def trials_as_json(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return runs as JSON has them."""
    return [
        {
            "what": trial.what,
            "nodes": len(trial.names),
            "metric": trial.accuracy.metric,
            "verdict": trial.accuracy.verdict.value,
        }
        for trial in trials
    ]


@contextmanager
def saving_on_interrupt(trials: Trials, path: Path) -> Iterator[None]:
    """Write the runs so far to a JSON file where Ctrl-C ends the ``with`` block, and say so."""

    def how_far() -> str:
        enough = [trial.names for trial in trials.ran[2:] if trials.enough(trial)]
        best = min(enough, key=len) if enough else ()
        head = {"schema_version": 1, "interrupted": True, "metric": trials.metric, "baseline": trials.baseline}
        text = json.dumps({**head, "smallest_that_passes": list(best), "trials": trials_as_json(trials.ran)}, indent=1)
        write_file(path, text.encode())
        told = f"; {len(best)} nodes are enough so far" if best else ""
        return f"after {len(trials.ran)} runs{told}; they are in {path}"

    with telling(how_far):
        yield
