"""Rules for files and folders: presence, names, sizes, links, and text encoding."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from model_config.cases.config import STEPS
from model_config.structure.data_files import sample_data
from model_config.structure.source import TEXT_SUFFIXES, Broken, Folder, SourceFile, inside
from model_config.syntax import LONGEST_LINE
from tecoinfer_modelzoo.text import nearest

REQUIRED = ("README.md", "requirements.txt")
"""Files that every model's folder must contain in addition to the scripts of its steps."""

LAYOUT = re.compile(r"(contrib/)?example/[^/]+/[^/]+")
NAME = re.compile(r"[a-z0-9_]+")
MODULE = re.compile(r"\w+", re.ASCII)

EXTENDS = "__path__ = pkgutil.extend_path(__path__, __name__)"
"""Required line of an ``__init__.py`` in ``contrib/utils``."""

MAX_FILE = 10_000_000
"""Maximum size of a file in bytes; larger files must be downloaded."""

MAX_WEIGHTS = 2_000_000
"""Maximum size of a weights file in bytes, enough for a small trained model."""

MAX_DATA = 5_000_000
"""Maximum size of a folder's data in bytes: files in subfolders that are neither weights nor scripts."""

WEIGHTS = re.compile(r"\.(bin|ckpt|data|engine|h5|onnx|pdiparams|pdmodel|pdparams|pkl|pth?|safetensors|tecoengine)")
"""File name endings of weights."""


def check_required(folder: Folder) -> Iterator[Broken]:
    """The folder holds ``README.md``, ``requirements.txt`` and the script of every step, and git keeps them."""
    wanted = dict.fromkeys(REQUIRED, "every model has one")
    wanted |= {step.run_file: f"{STEPS[step.name]}.run_file names it" for step in folder.case.steps}
    for name, why in wanted.items():
        path, full = folder.path / name, folder.full(name)
        if os.path.isdir(path):
            yield Broken(full, 0, "is a folder", "put a file of this name in its place")
        elif not os.path.lexists(path):
            near = nearest(name, _names(folder), cutoff=0.8)
            yield Broken(full, 0, f"is missing; {why}", f"rename {near}" if near else "add it")
        elif folder.find(name) is None:
            yield Broken(full, 0, "is there, but git ignores it", "correct .gitignore, or add it with 'git add -f'")


def _names(folder: Folder) -> list[str]:
    return [os.path.relpath(source.name, folder.run_dir) for source in folder.files]


def check_layout(folder: Folder) -> Iterator[Broken]:
    """A model lies in ``example/<domain>/<model>`` or ``contrib/example/<domain>/<model>``."""
    if not os.path.isdir(folder.path):
        yield folder.broken("the folder does not exist", "correct run_dir, or add the folder")
    if not LAYOUT.fullmatch(folder.run_dir):
        yield folder.broken("is not a model's folder", "move it to [contrib/]example/<domain>/<model>")
    if not inside(folder.path, folder.root):
        yield folder.broken("the folder lies outside the repository", "put it where run_dir says, not a link to it")


def check_names(folder: Folder) -> Iterator[Broken]:
    """Folders and scripts are named in lower case with underscores; modules in subfolders as Python can import them."""
    for part in PurePosixPath(folder.run_dir).parts:
        if not NAME.fullmatch(part):
            yield folder.broken(
                f"folder {part!r} is not in lower case with underscores", f"rename it to {_snake(part)}"
            )
    yield from _check_scripts(folder)


def _check_scripts(folder: Folder) -> Iterator[Broken]:
    """Check the names of the scripts and modules of a folder, and of the subfolders that contain them."""
    steps = {folder.full(step.run_file) for step in folder.case.steps}
    folders: set[PurePosixPath] = set()
    data = sample_data(folder)
    for source in (one for one in folder.files if one.suffix in (".py", ".sh") and one.name not in data):
        path = PurePosixPath(source.name).relative_to(folder.run_dir)
        folders.update(path.parents[:-1])
        is_script = len(path.parts) == 1 or source.name in steps
        if not (NAME if is_script else MODULE).fullmatch(path.stem):
            fix = f"rename it to {_snake(path.stem)}{path.suffix}"
            yield source.broken(0, f"script {path.name!r} is not in lower case with underscores", fix)
    yield from _check_packages(folder, folders)


def _check_packages(folder: Folder, found: Iterable[PurePosixPath]) -> Iterator[Broken]:
    for name in sorted(inner.as_posix() for inner in found if not MODULE.fullmatch(inner.name)):
        fix = f"rename it to {_snake(PurePosixPath(name).name)}"
        yield Broken(folder.full(name), 0, f"folder {name!r} of scripts has a name Python cannot import", fix)


def _snake(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "a_name"


def check_text(source: SourceFile) -> Iterator[Broken]:
    """Texts are UTF-8 without a byte order mark, with plain line ends, and no line has over 20 000 characters."""
    if source.suffix not in TEXT_SUFFIXES or not source.data:
        return
    if source.data.startswith(b"\xef\xbb\xbf"):
        yield source.broken(1, "starts with a byte order mark", "save it as UTF-8 without one")
    try:
        source.data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte {source.data[error.start]:#04x}"
        yield source.broken(_line(source, error.start), f"{byte} is not UTF-8 text", "save the file as UTF-8")
        return
    for what, name in ((b"\0", "a null byte"), (b"\r", "a carriage return (a line end of Windows)")):
        at = source.data.find(what)
        if at >= 0:
            yield source.broken(_line(source, at), f"holds {name}", "save it as a text with plain line ends (LF)")
    if source.is_written:
        for number, line in enumerate(source.text.split("\n"), start=1):
            if len(line) > LONGEST_LINE:
                long = f"has {len(line)} characters in a line, more than {LONGEST_LINE}"
                yield source.broken(number, long, "break the line; the rest of it is not checked")


def _line(source: SourceFile, byte: int) -> int:
    return source.data.count(b"\n", 0, byte) + 1


def check_size(source: SourceFile) -> Iterator[Broken]:
    """No file is larger than 10 MB, and no weights are larger than 2 MB: they are downloaded or made by the export."""
    limit = MAX_WEIGHTS if WEIGHTS.fullmatch(source.suffix) else MAX_FILE
    if source.size is not None and source.size > limit:
        what = "weights of " if limit == MAX_WEIGHTS else ""
        fix = "take it out of git; README 2.3 and 2.4 say where weights and data come from"
        yield source.broken(0, f"{what}{source.size / 1e6:.1f} MB are more than {limit / 1e6:.0f} MB", fix)


def check_data_size(folder: Folder) -> Iterator[Broken]:
    """The data in a folder's subfolders is 5 MB at most, all files together: more is downloaded."""
    counted = [source for source in folder.files if _is_data(source, folder)]
    total = sum(source.size or 0 for source in counted)
    if total > MAX_DATA:
        largest = max(counted, key=lambda source: source.size or 0)
        what = f"is the largest of {len(counted)} files of data: {total / 1e6:.1f} MB are more than "
        yield largest.broken(0, f"{what}{MAX_DATA / 1e6:.0f} MB", "keep less; README 2.4 says where data come from")


def _is_data(source: SourceFile, folder: Folder) -> bool:
    """Return whether a file belongs to a data set: in a subfolder, and neither a script nor weights."""
    inner = PurePosixPath(source.name).relative_to(folder.run_dir)
    return len(inner.parts) > 1 and source.suffix != ".py" and not WEIGHTS.fullmatch(source.suffix)


def check_readable(source: SourceFile) -> Iterator[Broken]:
    """Everything is a regular file that can be read, or a link to one; links stay in the repository."""
    if os.path.islink(source.path):
        yield from _check_symlink(source)
    elif source.size is None:
        yield source.broken(0, "is not a regular file", "take it out of git, or put a plain file in its place")
    elif source.suffix in TEXT_SUFFIXES and source.unreadable:
        yield source.broken(0, f"cannot be read: {source.unreadable}", "correct its permissions")
    elif source.suffix in TEXT_SUFFIXES and source.size > source.most:
        fix = f"make it smaller than {source.most // 1_000_000} MB"
        yield source.broken(0, "is too large to be checked", fix)


def _check_symlink(source: SourceFile) -> Iterator[Broken]:
    target = os.readlink(source.path)
    if not inside(source.path, source.root):
        yield source.broken(0, f"links out of the repository, to {target!r}", "commit the file itself")
    elif not os.path.exists(source.path):
        yield source.broken(0, f"links to {target!r}, which does not exist", "correct or remove the link")


def check_package(source: SourceFile) -> Iterator[Broken]:
    """Packages of ``contrib/utils`` merge behind the core's: ``__init__.py`` is there and extends its path."""
    path = PurePosixPath(source.name)
    if path.suffix != ".py" or path.parts[:2] != ("contrib", "utils"):
        return
    init = SourceFile((path.parent / "__init__.py").as_posix(), source.root)
    fix = f"write 'import pkgutil' and '{EXTENDS}' into {init.name}"
    if not os.path.isfile(init.path):
        yield source.broken(0, "its folder has no __init__.py: the core cannot import it", fix)
    elif path.name == "__init__.py" and EXTENDS not in source.text.splitlines():
        yield source.broken(0, "does not extend the package's path", fix)
    if not MODULE.fullmatch(path.stem):
        yield source.broken(0, f"{path.name!r} cannot be imported", f"rename it to {_snake(path.stem)}.py")
