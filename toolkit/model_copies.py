"""Copies of models into a project: the folder with weights and data, its cases, and data of other folders it uses.

Nothing is changed on an error. In a project the scripts import the installed zoo, as those of ``teco new`` do.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import Case
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.distribution import readme_install
from tecoinfer_modelzoo.trees import below
from toolkit.scaffold import INSTALLED, append_case, check_case, check_names
from toolkit.zoo import PLACES, SCRIPTS, Model

CONFIG = PLACES["core"].config
RESULTS = ("numerics.yaml", "perf.yaml")
"""Results of the check of a model under its own name."""

_TEXT = (".md", ".py", ".sh", ".txt", ".yaml", ".yml")
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*.partial")

_PATH_LINE = re.compile(
    r"^sys\.path\.insert\(0, (str\((?:Path\(__file__\)\.resolve\(\)\.parents\[3\]|HERE\.parents\[2\])\))\).*$",
    re.MULTILINE,
)
"""The line of a script in a clone that puts the zoo's packages first."""

_ELSEWHERE = re.compile(r"""(?<![\w./-])\.\./[\w./-]*\w""")
"""A path in another model's folder, in a script or a case."""

_LINK = re.compile(r"!?\[([^\]]*)\]\(\s*<?([^()\s<>#]+)[^()]*\)")
_INSTALL = re.compile(r"^python -m pip install \.$", re.MULTILINE)
_PACKAGE = re.compile(r"\bfetch:([\w-]+)/")


@dataclass(frozen=True)
class Copied:
    """Result of :func:`copy_model`.

    Attributes:
        folder, config: of the model and of its cases, relative to the project. files, size: number of files, and
            their bytes. cases: names. shared: data of other models that were copied too, relative to the project.
        packages: packages of ``teco fetch`` whose files the model reads.
    """

    folder: str
    config: str
    files: int
    size: int
    cases: tuple[str, ...]
    shared: tuple[str, ...]
    packages: tuple[str, ...]


def copy_model(model: Model, project: Path, name: str = "") -> Copied:
    """Copy a model's folder and its cases into a project.

    Args:
        model: of a clone, a project or another zoo. project: its root. name: of the copy; empty: that of the model, and
            results of earlier checks are copied too.

    Raises ConfigError: the name is invalid, the folder or a case of the name exists, or a file cannot be written;
    nothing was changed.
    """
    if not model.folder.is_dir():
        raise ConfigError(f"{model.folder} is not a folder; correct the zoo {model.root}")
    folder = project / PLACES["core"].folder / model.domain / (name or model.name)
    if name:
        check_names(model.domain, name, project)
    else:
        _check_free(folder, model.folder, project)
    names = {case.name: _renamed(case.name, model.name, name) for case in model.cases}
    for case in names.values():
        check_case(case, project)
    try:
        with ExitStack() as undo:
            files = _copy_folder(model, folder, project, name, undo)
            shared = _copy_shared(model, project, undo)
            _append_cases(model, project, names, folder.relative_to(project).as_posix(), undo)
            undo.pop_all()
        shutil.rmtree(_aside(folder), ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; nothing was copied") from error
    texts = [*_own_texts(model), *(_case_text(case) for case in model.cases)]
    packages = sorted({found for text in texts for found in _PACKAGE.findall(text)})
    size = sum(file.stat().st_size for file in files)
    path = folder.relative_to(project).as_posix()
    return Copied(path, CONFIG, len(files), size, tuple(names.values()), tuple(shared), tuple(packages))


def export_needs(project: Path, folder: str) -> str:
    """Return the command that installs what the export of a copy needs, as the check repeats it; "" if nothing."""
    if not has_requirements(project / folder):
        return ""
    place = project / folder / "requirements.txt"
    here = Path.cwd()
    shown = place.relative_to(here).as_posix() if place.is_relative_to(here) else str(place)
    return f"pip install -r {shown}   # for the check, which repeats the export"


def has_requirements(folder: Path) -> bool:
    """Return whether a model's requirements.txt lists packages."""
    file = folder / "requirements.txt"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    return any(line.strip() and not line.startswith("#") for line in lines)


def _check_free(folder: Path, source: Path, project: Path) -> None:
    """Raise ConfigError if the folder is a model, or has a file that the model lacks or that is different there.

    A folder with some of the model's data is completed: another model that uses these data may have been copied.
    """
    if not os.path.lexists(folder):
        return
    shown = folder.relative_to(project).as_posix()
    if folder.resolve() == source.resolve() or any((folder / script).is_file() for script in SCRIPTS.values()):
        raise ConfigError(f"{shown} exists in {project}; remove it first, or copy into another folder: --out DIR")
    names = [file.relative_to(folder) for file in below(folder)] if folder.is_dir() else [Path()]
    for name in names:
        if (folder / name).is_dir() and name.parts:
            continue
        if not (source / name).is_file() or not filecmp.cmp(folder / name, source / name, shallow=False):
            what = f"{shown}/{name.as_posix()}" if name.parts else shown
            raise ConfigError(
                f"{shown} exists in {project}, and {what} is not a file of the model; remove or rename the folder, or "
                "copy into another one: --out DIR"
            )


def _copy_folder(model: Model, folder: Path, project: Path, name: str, undo: ExitStack) -> list[Path]:
    """Copy the folder and adapt its texts; return the files."""
    _make_parents(folder.parent, project, undo)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    undo.callback(shutil.rmtree, partial, ignore_errors=True)
    shutil.copytree(model.folder, partial, ignore=_SKIPPED)
    if name:
        for result in RESULTS:
            (partial / result).unlink(missing_ok=True)
    for file in sorted(partial.rglob("*")):
        if file.suffix in _TEXT and file.is_file():
            _adapt(file, partial, model, folder, project, name)
    if folder.is_dir():  # a part of the same data (_check_free)
        before = _aside(folder)
        folder.rename(before)
        undo.callback(before.rename, folder)
    partial.rename(folder)
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{os.getpid()}.before.partial")


def _adapt(file: Path, partial: Path, model: Model, folder: Path, project: Path, name: str) -> None:
    """Change a text that refers to the place or the name of the model."""
    try:
        before = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return
    text = before
    if not has_packages(project):
        if file.suffix == ".py":
            text = _PATH_LINE.sub(lambda line: INSTALLED.replace(_OF_INSTALLED, line[1]), text)
        if file.suffix == ".md":
            text = _INSTALL.sub(lambda _: readme_install(), text)
    if file.suffix == ".md":
        place = model.folder / file.relative_to(partial).parent
        target = folder / file.relative_to(partial).parent
        text = _LINK.sub(lambda link: _link(link, place, target, model.root), text)
    if name:
        text = text.replace(f"{model.domain}/{model.name}", f"{model.domain}/{name}")
    if name and file.name == "README.md" and file.parent == partial:
        text = re.sub(r"\A# .*", f"# {name.replace('_', ' ').title()}", text)
    if text != before:
        file.write_bytes(text.encode())


_OF_INSTALLED = "str(Path(__file__).resolve().parents[3])"


def _link(link: re.Match[str], place: Path, target: Path, root: Path) -> str:
    """Return a link, or only its text if it leads to a file that is not copied."""
    text, path = link[1], link[2]
    if re.match(r"[a-zA-Z][a-zA-Z+.-]*:", path) or not path.startswith("../"):
        return link[0]
    if os.path.exists(os.path.normpath(target / path)):
        return link[0]
    found = Path(os.path.normpath(place / path))
    where = found.relative_to(root).as_posix() if found.is_relative_to(root) else path
    return f"{text} of the zoo" if where.endswith(text.strip("`")) else f"{text} ({where} of the zoo)"


def _copy_shared(model: Model, project: Path, undo: ExitStack) -> list[str]:
    """Copy data of other models that the model's scripts and cases name; return their paths."""
    copied = []
    for path in _shared(model):
        target = project / path
        if target.exists():
            continue
        _make_parents(target.parent, project, undo)
        source = model.root / path
        if source.is_dir():
            undo.callback(shutil.rmtree, target, ignore_errors=True)
            shutil.copytree(source, target, ignore=_SKIPPED)
        else:
            undo.callback(target.unlink, missing_ok=True)
            shutil.copyfile(source, target)
        copied.append(path)
    return copied


def _shared(model: Model) -> list[str]:
    """Return the paths that a model uses in other models' folders, each the first level below such a folder."""
    root = model.root.resolve()
    found = set()
    for text in (*_own_texts(model), *(_case_text(case) for case in model.cases)):
        for word in _ELSEWHERE.findall(text):
            path = Path(os.path.normpath(model.folder.resolve() / word))
            parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
            if parts[:1] == (PLACES["core"].folder,) and len(parts) > 3 and path.exists() and path.suffix != ".py":
                found.add("/".join(parts[:4]))
    return sorted(place for place in found if not place.startswith(f"{model.path}/"))


def _own_texts(model: Model) -> list[str]:
    return [file.read_text(encoding="utf-8", errors="replace") for file in sorted(model.folder.glob("*.py"))]


def _append_cases(model: Model, project: Path, names: dict[str, str], folder: str, undo: ExitStack) -> None:
    """Append the cases to the project's file."""
    if not model.cases:
        return
    config = project / CONFIG
    before = config.read_bytes() if config.is_file() else None
    if before is None:
        _make_parents(config.parent, project, undo)
    undo.callback(_restore, config, before)
    for case in model.cases:
        text = _case_text(case)
        for key, value in (("case_name", names[case.name]), ("run_dir", folder)):
            text = re.sub(rf"^([-\s]\s+{key}:).*$", rf"\1 {value}", text, count=1, flags=re.MULTILINE)
        append_case(config, text, names[case.name], project, undo)


def _restore(config: Path, before: bytes | None) -> None:
    if before is None:
        config.unlink(missing_ok=True)
    else:
        config.write_bytes(before)


def _case_text(case: Case) -> str:
    """Return the lines of a case in its file, without comments that follow it."""
    lines = case.source.read_text(encoding="utf-8").splitlines()[max(case.line - 1, 0) :]
    more = (number for number, line in enumerate(lines[1:], start=1) if line[:1] not in ("", " ", "#"))
    lines = lines[: next(more, len(lines))]
    while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()
    return "\n".join(lines) + "\n"


def _renamed(case: str, model: str, name: str) -> str:
    """Return the name of a case of the copy."""
    if not name:
        return case
    return f"{name}{case.removeprefix(model)}" if case.startswith(model) else f"{name}_{case}"


def _make_parents(folder: Path, root: Path, undo: ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if path.is_relative_to(root) and not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        undo.callback(_remove_empty, path)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
