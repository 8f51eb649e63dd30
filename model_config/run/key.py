"""Key of a case's result: the hash of everything that determines it.

Every file is read and hashed in every check; sizes and times of files replace their contents only for data outside the
repository.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from engine import ConfigError
from engine.host import components, variables
from engine.onnx import model_content
from model_config.cases.config import ROOT, Case
from model_config.cases.imports import Imports
from model_config.results import SCHEMA_VERSION
from model_config.run.workplace import ignored_checkpoints
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.trees import walk
from utils.fetch import Package, is_fetched_path, package_of, packages, read_contrib


class Shared:
    """What the keys of all cases of a check have in common, determined once per check.

    Files outside the cases' folders are hashed once, as the steps of all cases see one snapshot of them.

    Args:
        root: the repository. imports: its import graph; default: a new one.
    """

    def __init__(self, root: Path, imports: Imports | None = None) -> None:
        self.root = root
        self.imports = imports or Imports(root)
        self._hashes: dict[str, str] = {}

    def hashes(self, case: Case) -> dict[str, str]:
        """Return the hashes of the files outside its folder that a case may use, and of the check's own code."""
        used = {name for name in self.imports.of_case(case) if not name.startswith(f"{case.run_dir}/")}
        return {name: self._hash(name) for name in sorted(used.union(self._own))}

    def _hash(self, name: str) -> str:
        if name not in self._hashes:
            self._hashes[name] = hash_files(self.root / name)
        return self._hashes[name]

    @cached_property
    def _own(self) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in (self.root / "model_config").rglob("*.py")]

    @cached_property
    def packages(self) -> dict[str, Package]:
        """Rows of the tables of packages, by name."""
        read_contrib(self.root)
        return packages()

    @cached_property
    def machine(self) -> dict[str, Any]:
        """Engines, packages and machine."""
        return {
            "engines": dict(_engines()),
            "components": components(),
            "installed": _installed(),
            "machine": [platform.platform(), platform.machine(), os.cpu_count()],
        }


def case_key(
    case: Case, root: Path = ROOT, *, flags: Mapping[str, Any] | None = None, shared: Shared | None = None
) -> str:
    """Return the hexadecimal SHA-256 of everything that determines the result of a case.

    This includes the entry in ``model.yaml``; the copied files of its folder; the data set (outside the repository by
    names, sizes and times); models in other places with their external weights; all files its scripts may use; the
    code of the check and of registered engines; the versions of Python and packages, the machine, and the environment
    variables that the zoo reads.

    Args:
        flags: other determining settings as JSON types, such as limits and tolerances.
        shared: what the cases of a check have in common; default: of this case alone.

    Raises:
        ConfigError: a file cannot be read.
    """
    try:
        content = _content(case, root, shared or Shared(root))
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}; check its permissions") from error
    text = json.dumps({**content, "flags": dict(flags or {})}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _content(case: Case, root: Path, shared: Shared) -> dict[str, Any]:
    """Return the content that :func:`case_key` hashes."""
    described = asdict(replace(case, source=Path(), line=0)) | {"source": None}
    places = ("TECO_CACHE_DIR", "TECO_FETCH_DIR")
    return {
        "layout": SCHEMA_VERSION,
        "case": described,
        "files": shared.hashes(case),
        "folder": dict(_folder(case, root)),
        "data": dict(_data(case, root)),
        "models": dict(_models(case, root)),
        "packages": dict(_packages(case, shared)),
        "environment": {name: value for name, value in variables().items() if name not in places},
        **shared.machine,
    }


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


def _packages(case: Case, shared: Shared) -> Iterator[tuple[str, str]]:
    """Yield the models and data that come from packages, with version, hash and members of these.

    Whether a package is downloaded already does not matter: a case whose download fails is not stored.
    """
    for text in {path for step in case.steps for path in (*step.data_paths.values(), *step.ckpts.values())}:
        if is_fetched_path(text):
            package = shared.packages.get(package_of(text))
            yield text, "unknown" if package is None else package.key


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
