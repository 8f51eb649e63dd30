"""Hashes of the inputs of a run: its models, the files its flags name, and its code.

A journal, and stored vectors, are valid only while all of these are unchanged. Files are compared by content, not by
name or time; data sets have a separate fingerprint (:meth:`utils.datasets.samples.TableDataset.fingerprint`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from engine import Engine
from engine.onnx import model_content
from tecoinfer_modelzoo.content import Content, Stamp, content_of, stamp_of
from tecoinfer_modelzoo.files import size_and_time
from utils.code_files import code_files, zoo_code

MOST_FILES, MOST_BYTES = 1000, 1 << 30
"""Largest number and total bytes of files in a folder that are hashed; above, names, sizes and times are compared."""

MOST_SEEN = 100_000
"""Largest number of files in a folder that are listed, as a flag's text may name any folder by accident."""

GONE = "cannot be read"
"""In place of the hash of a file that cannot be read."""


class Part(NamedTuple):
    """A file that a run reads: its path, the SHA-256 of its content, and its stamp at that time."""

    path: Path
    content: str
    stamp: Stamp | None


class Inputs:
    """The inputs of a run, by names that do not depend on paths: ``model``, ``--charset``, ``code valid.py``.

    Attributes:
        parts: the files by name. facts: further hashes and versions of code, by name.
    """

    def __init__(self, parts: Mapping[str, Part], facts: Mapping[str, str]) -> None:
        self.parts, self.facts = dict(parts), dict(facts)

    @property
    def contents(self) -> dict[str, str]:
        """Hashes and versions by name, as a journal stores them."""
        return {**{name: part.content for name, part in self.parts.items()}, **self.facts}

    @property
    def digest(self) -> str:
        """One hash over :attr:`contents`."""
        return sha256(repr(sorted(self.contents.items())).encode("utf-8", "surrogatepass")).hexdigest()

    def changed(self) -> Path | None:
        """Return a file whose content has changed since construction; ``None``: there is none."""
        return next((part.path for part in self.parts.values() if not _is_same(part)), None)


def _is_same(part: Part) -> bool:
    try:
        return part.stamp is None or stamp_of(part.path) == part.stamp or content_of(part.path).sha256 == part.content
    except OSError:
        return False


def part_of(path: Path) -> Part:
    """Return the current state of a file."""
    try:
        return _part(path, content_of(path))
    except OSError:
        return Part(path, GONE, None)


def _part(path: Path, content: Content | None) -> Part:
    return Part(path, GONE, None) if content is None else Part(path, content.sha256, content.stamp)


def inputs_of(
    models: Mapping[str, Path],
    flags: Mapping[str, Any],
    functions: Iterable[Callable[..., Any]],
    *,
    pass_path: Path | None = None,
    data: Iterable[Path] = (),
) -> Inputs:
    """Hash all inputs of a run other than its data.

    Args:
        models: the ONNX files by name. flags: values by name; a value that names a file or a folder stands for its
            content.
        functions: of the task; their files, and files these import, except those of the zoo and installed packages.
        pass_path: the pass file. data: paths of the data set, which are left out if the code names them.
    """
    parts: dict[str, Part] = {}
    for name, path in models.items():
        parts |= _model_parts(name, path)
    for key, value in flags.items():
        parts |= {f"--{key}{end}": part for end, part in _flag_parts(value)}
    if pass_path is not None:
        parts["--pass_path"] = part_of(pass_path)
    code = code_files(functions, [] if pass_path is None else [pass_path])
    places = [Path(os.path.realpath(one.expanduser())) for one in data]
    own = {name: path for name, path in code.items() if not any(path.is_relative_to(one) for one in places)}
    parts |= {f"code {name}": part_of(path) for name, path in own.items()}
    return Inputs(parts, zoo_code())


def _model_parts(name: str, path: Path) -> Iterator[tuple[str, Part]]:
    try:
        found = model_content(path)
    except OSError:
        yield name, Part(path, GONE, None)
        return
    yield name, _part(path, found.model)
    for external, content in found.external.items():
        yield f"{name} {external}", _part(path.parent / external, content)


def names_files(value: Any) -> bool:
    """Return whether a flag's value names existing files."""
    return next(_flag_parts(value), None) is not None


def _flag_parts(value: Any) -> Iterator[tuple[str, Part]]:
    """Yield the files that a flag's value names, each with a suffix that is unique in the flag."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from ((f" {name}{end}", part) for end, part in _flag_parts(one))
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from ((f" {place}{end}", part) for end, part in _flag_parts(one))
    elif isinstance(value, (str, os.PathLike)) and os.fspath(value):
        yield from _path_parts(os.fspath(value))


def _path_parts(text: str) -> Iterator[tuple[str, Part]]:
    path = Path(text).expanduser()
    try:
        if path.is_file():
            yield "", part_of(path)
            return
        if not path.is_dir():
            _, named, behind = text.partition("=")
            yield from _path_parts(behind) if named and behind else ()
            return
        files = sorted(islice((file for file in path.rglob("*") if file.is_file()), MOST_SEEN))
    except (OSError, ValueError):  # ValueError: a null character
        return
    if len(files) <= MOST_FILES and sum(max(0, size_and_time(file)[0]) for file in files) <= MOST_BYTES:
        for file in files:
            yield f"/{file.relative_to(path).as_posix()}", part_of(file)
        return
    digest = sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)} {size_and_time(file)}\n".encode("utf-8", "surrogatepass"))
    yield "/", Part(path, digest.hexdigest(), None)


def computed_by(engine: Engine) -> str:
    """Return the description of an engine without measurements, which may differ between runs."""
    return str(getattr(engine, "computed_by", None) or engine.describe())
