"""Which content everything had that a run read: its models, the files its flags name, and the code that ran.

A journal is of one run only as long as all of this is the same, and so are vectors that are kept. Files count by what
is in them, not by their names or times; data sets have a fingerprint of their own
(:meth:`utils.datasets.samples.TableDataset.fingerprint`).
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
"""Files of a folder, and bytes of all of them, that count by their content; of more, name, size and time count."""

MOST_SEEN = 100_000
"""Files of a folder that are looked at: a text that no path was meant by may be the name of any folder."""

GONE = "cannot be read"
"""Stands for the content of a file that cannot be read."""


class Part(NamedTuple):
    """A file that a run reads: where it lies, what it holds (a SHA-256), and the stamp it had then."""

    path: Path
    content: str
    stamp: Stamp | None


class Inputs:
    """What a run reads, by names that are the same wherever the files lie: ``model``, ``--charset``, ``code valid.py``.

    Attributes:
        parts: the files by name. facts: what else says which code runs, by name.
    """

    def __init__(self, parts: Mapping[str, Part], facts: Mapping[str, str]) -> None:
        self.parts, self.facts = dict(parts), dict(facts)

    @property
    def contents(self) -> dict[str, str]:
        """What a journal keeps: a hash, or a text, by name."""
        return {**{name: part.content for name, part in self.parts.items()}, **self.facts}

    @property
    def digest(self) -> str:
        """One hash of all of it."""
        return sha256(repr(sorted(self.contents.items())).encode("utf-8", "surrogatepass")).hexdigest()

    def changed(self) -> Path | None:
        """Return a file that is not what it was when these were taken; a new time alone is no change."""
        return next((part.path for part in self.parts.values() if not _is_same(part)), None)


def _is_same(part: Part) -> bool:
    try:
        return part.stamp is None or stamp_of(part.path) == part.stamp or content_of(part.path).sha256 == part.content
    except OSError:
        return False


def part_of(path: Path) -> Part:
    """Return what a file holds now."""
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
    """Take the contents of all that a run reads besides its data.

    Args:
        models: the ONNX files by name. flags: values by name; those that name a file or a folder count by its content.
        functions: what the task runs; their files count, with all they import that is neither the zoo's nor installed.
        pass_path: the pass file. data: what the data set is read from, which a script may name.
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
    """Say whether a flag's value names files that are there, so that their contents say more than their names."""
    return next(_flag_parts(value), None) is not None


def _flag_parts(value: Any) -> Iterator[tuple[str, Part]]:
    """Yield the files that a flag's value names, each with what tells it from the flag's others."""
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
    except (OSError, ValueError):  # ValueError: a NUL in it
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
    """Return what computes, without what was measured of it: the same engine may be measured anew."""
    return str(getattr(engine, "computed_by", None) or engine.describe())
