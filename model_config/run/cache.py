"""Cache of check results, keyed by the hash of everything they depend on.

Each result is a folder with logs and ``result.json`` in the cache (:mod:`tecoinfer_modelzoo.cache`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from engine import ConfigError
from engine.host import components, variables
from engine.onnx import model_content
from model_config.cases.config import ROOT, Case
from model_config.cases.imports import Imports
from model_config.results import SCHEMA_VERSION, Accuracy, CaseResult, Drawn, Finding, Speed, StepResult, Verdict
from model_config.run.workplace import ignored_checkpoints
from tecoinfer_modelzoo.cache import cache_folder
from tecoinfer_modelzoo.files import hash_files, read_regular
from tecoinfer_modelzoo.trees import walk
from utils.fetch import is_fetched_path, kept_path, read_contrib

KIND = "check"
"""Folder name in the cache."""

_KEPT = 30 * 24 * 3600.0
"""Seconds after which an unused result is deleted."""

_log = logging.getLogger(__name__)


def case_key(
    case: Case, root: Path = ROOT, *, flags: Mapping[str, Any] | None = None, imports: Imports | None = None
) -> str:
    """Return the hexadecimal SHA-256 of everything that determines the result of a case.

    This includes the entry in ``model.yaml``; the copied files of its folder; the data set (outside the repository by
    names, sizes and times); models in other places with their external weights; all files its scripts may use; the
    code of the check and of registered engines; the versions of Python and packages, the machine, and the environment
    variables that the zoo reads.

    Args:
        flags: other determining settings as JSON types, such as limits and tolerances.
        imports: import graph shared among cases; default: a new one.

    Raises:
        ConfigError: a file cannot be read.
    """
    try:
        content = _content(case, root, imports or Imports(root))
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}; check its permissions") from error
    text = json.dumps({**content, "flags": dict(flags or {})}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _content(case: Case, root: Path, imports: Imports) -> dict[str, Any]:
    """Return the content that :func:`case_key` hashes."""
    described = asdict(replace(case, source=Path(), line=0)) | {"source": None}
    places = ("TECO_CACHE_DIR", "TECO_FETCH_DIR")
    surroundings = {name: value for name, value in variables().items() if name not in places}
    used = {name for name in imports.of_case(case) if not name.startswith(f"{case.run_dir}/")}
    own = (path.relative_to(root).as_posix() for path in (root / "model_config").rglob("*.py"))
    return {
        "layout": SCHEMA_VERSION,
        "case": described,
        "files": {name: hash_files(root / name) for name in sorted({*used, *own})},
        "folder": dict(_folder(case, root)),
        "data": dict(_data(case, root)),
        "models": dict(_models(case, root)),
        "engines": dict(_engines()),
        "packages": dict(_packages(case, root)),
        "components": components(),
        "installed": _installed(),
        "machine": [platform.platform(), platform.machine(), os.cpu_count()],
        "environment": surroundings,
    }


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


def _installed() -> list[str]:
    """Return all installed packages with versions, from their folder names, which is fast."""
    return sorted({path.name for place in sys.path for path in Path(place).glob("*.dist-info")})


def _folder(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and hash of the files that :func:`model_config.run.workplace.mirror` copies."""
    top = root / case.run_dir
    left_out = {os.path.normpath(top / name) for name in ignored_checkpoints(case, root)}
    for path in _walk(top):
        name = str(path.relative_to(top))
        if path.is_symlink():
            yield name, f"link to {os.readlink(path)} {_stamp(path)}"
        elif path.is_file() and os.path.normpath(path) not in left_out:
            yield name, hash_files(path)


def _packages(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the models and data that come from packages.

    Packages that are not downloaded yet make each key unique, as a later download may succeed.
    """
    for text in {path for step in case.steps for path in (*step.data_paths.values(), *step.ckpts.values())}:
        if is_fetched_path(text):
            read_contrib(root)
            place = kept_path(Path(), text)  # in a folder named by version, hash and members
            yield text, str(place) if place.exists() else f"not kept at {time.time_ns()}"


def _data(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the content of the data sets outside the model's folder."""
    own, real = os.path.realpath(root / case.run_dir), os.path.realpath(root)
    for text in {path for step in case.steps for path in step.data_paths.values()}:
        place = Path(os.path.realpath(root / case.run_dir / text))
        if is_fetched_path(text) or place.is_relative_to(own):
            continue
        files = _walk(place) if place.is_dir() else [place]
        in_tree: Callable[[Path], str] = hash_files if place.is_relative_to(real) else _stamp
        for path in files:
            yield f"{text}: {path}", in_tree(path) if path.is_file() else "gone"


def _models(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the models outside the case's folder, with all files of external weights."""
    own = os.path.realpath(root / case.run_dir)
    for text in {path for step in case.steps for path in step.ckpts.values()}:
        place = Path(os.path.realpath(root / case.run_dir / text))
        if not is_fetched_path(text) and not place.is_relative_to(own) and place.is_file():
            yield text, model_content(place).sha256


def _engines() -> Iterator[tuple[str, str]]:
    """Yield the code of engines that packages register, without importing it."""
    for point in entry_points(group="tecoinfer.engines"):
        try:
            spec = importlib.util.find_spec(point.module.partition(".")[0])
        except (ImportError, ValueError):
            spec = None
        places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
        files = sorted(file for place in places for file in place.rglob("*.py"))
        if spec is not None and not places and spec.origin is not None and spec.has_location:
            files = [Path(spec.origin)]
        yield f"{point.name} {point.value}", hash_files(*files)


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in [*files, *links])


def _stamp(path: Path) -> str:
    """Return size and times of a path with links followed; of a folder those of all entries."""
    if path.is_dir():
        return hashlib.sha256("".join(f"{one} {_stamp(one)}" for one in sorted(_walk(path))).encode()).hexdigest()
    try:
        found = path.stat()
    except OSError:
        return "gone"
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"  # st_ctime cannot be set by a process


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
