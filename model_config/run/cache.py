"""Cache of check results, under the keys of :mod:`.key`.

Each result is a folder with logs and ``result.json`` in the cache (:mod:`tecoinfer_modelzoo.cache`).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from model_config.results import Accuracy, CaseResult, Drawn, Finding, Speed, StepResult, Verdict
from tecoinfer_modelzoo.cache import cache_folder
from tecoinfer_modelzoo.files import read_regular

KIND = "check"
"""Folder name in the cache."""

_KEPT = 30 * 24 * 3600.0
"""Seconds after which an unused result is deleted."""

_log = logging.getLogger(__name__)


def load(key: str) -> CaseResult | None:
    """Return a stored result with ``cached`` set; ``None`` if it is missing, or it or one of its logs is damaged."""
    folder = cache_folder(KIND)
    if folder is None:
        return None
    try:
        data = json.loads(read_regular(folder / key / "result.json"))
        result = _decoded(data, folder / key)
        os.utime(folder / key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.info("%s is ignored: %s", folder / key, error)
        return None
    logs = [path for step in result.steps for path in _logs(step)]
    return result if all(path.is_file() for path in logs) else None


def store(key: str, result: CaseResult) -> None:
    """Store a result and copies of its logs atomically, replacing an older one.

    A failed result is not stored, and removes the stored one: the failure may be due to the machine or the check, so
    failed cases are always rerun.
    """
    folder = cache_folder(KIND)
    if folder is None:
        return
    if result.verdict is Verdict.FAIL:
        shutil.rmtree(folder / key, ignore_errors=True)
        return
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        steps = tuple(_copied(step, made) for step in result.steps)
        kept = replace(result, steps=steps, drawn=tuple(_copied_images(one, made) for one in result.drawn))
        (made / "result.json").write_text(json.dumps(asdict(kept), default=_plain), encoding="utf-8")
        shutil.rmtree(folder / key, ignore_errors=True)
        made.replace(folder / key)
        _forget(folder)
    except OSError as error:
        _log.info("%s is not cached: %s", result.case, error)
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _logs(step: StepResult) -> list[Path]:
    return [step.stdout, step.stderr, *([step.result] if step.result else []), *step.images]


def _copied(step: StepResult, folder: Path) -> StepResult:
    """Copy a step's logs, and the files that belong to its JSON; returned paths are relative to ``folder``."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)

    def copy(path: Path, under: str = "logs") -> Path:
        (folder / under).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / under / path.name)
        return Path(under, path.name)

    if step.result is not None:  # the per-sample records have the same stem
        for beside in step.result.parent.glob(f"{step.result.stem}.*.csv"):
            copy(beside)
    return replace(
        step,
        stdout=copy(step.stdout),
        stderr=copy(step.stderr),
        result=copy(step.result) if step.result else None,
        images=tuple(copy(image, f"{step.step}.images") for image in step.images),
    )


def _copied_images(one: Drawn, folder: Path) -> Drawn:
    """Copy the images of a drawn sample; returned paths are relative to ``folder``."""

    def copy(path: Path | None) -> Path | None:
        if path is None:
            return None
        (folder / path.parent.name).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / path.parent.name / path.name)
        return Path(path.parent.name, path.name)

    return replace(one, target_image=copy(one.target_image), baseline_image=copy(one.baseline_image))


def _plain(value: Any) -> str:
    """Return a value without a JSON type (a path) as a string."""
    return str(value)


def _decoded(data: dict[str, Any], folder: Path) -> CaseResult:
    parts: dict[str, Any] = {
        "findings": tuple(Finding(**one) for one in data["findings"]),
        "steps": tuple(_step(one, folder) for one in data["steps"]),
        "accuracy": tuple(_accuracy(one) for one in data["accuracy"]),
        "speed": tuple(Speed(**one | {"verdict": Verdict(one["verdict"])}) for one in data["speed"]),
        "drawn": tuple(_drawn(one, folder) for one in data["drawn"]),
        "notes": tuple(data["notes"]),
        "cached": True,
    }
    return CaseResult(**data | parts)


def _step(data: dict[str, Any], folder: Path) -> StepResult:
    paths = {name: folder / data[name] for name in ("stdout", "stderr", "result") if data[name] is not None}
    images = tuple(folder / name for name in data["images"])
    return StepResult(**data | paths | {"command": tuple(data["command"]), "images": images})


def _drawn(data: dict[str, Any], folder: Path) -> Drawn:
    names = ("target_image", "baseline_image")
    return Drawn(**data | {name: folder / data[name] for name in names if data[name] is not None})


def _accuracy(data: dict[str, Any]) -> Accuracy:
    pairs = {name: tuple(data[name]) for name in ("interval", "changed") if data[name] is not None}
    pairs["tail"] = tuple(map(tuple, data["tail"]))
    return Accuracy(**data | pairs | {"verdict": Verdict(data["verdict"])})


def _forget(folder: Path) -> None:
    """Delete results that were not used for :data:`_KEPT` seconds, and incomplete ones of a killed check."""
    oldest = time.time() - _KEPT
    for path in folder.iterdir():
        if path.stat().st_mtime < oldest:
            shutil.rmtree(path, ignore_errors=True)
