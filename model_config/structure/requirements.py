"""Rules for a model's ``requirements.txt``: lines that pip can read, and versions compatible with the zoo's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from model_config.structure.source import SHOWN, Broken, Folder, SourceFile
from tecoinfer_modelzoo.text import shortened

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NAME = "requirements.txt"
_MOST = 1000
"""Maximum number of lines that are read."""

_LONGEST = 2000
"""Maximum characters of a line that is read."""

PADDLE = ("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx")
"""Packages that are tested with other versions: ``constraints-paddle.txt``."""

SOURCE = re.compile(r"(git|hg|svn|bzr)\+|[a-z]+://|\S+\.(whl|tar\.gz|zip)$|[./~]", re.IGNORECASE)
"""A requirement that does not come from the package index."""


def _lines(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield line number and text of the first :data:`_MOST` requirements, as pip reads them."""
    return islice(_all_lines(source), _MOST)


def _all_lines(source: SourceFile) -> Iterator[tuple[int, str]]:
    parts: list[str] = []
    for number, line in enumerate((*source.text.split("\n"), ""), start=1):
        text = re.sub(r"(^|\s)#.*", "", line)
        parts.append(text.removesuffix("\\"))
        if text.endswith("\\"):
            continue
        if joined := "".join(parts).strip():
            yield number - len(parts) + 1, joined
        parts = []


def _parsed(source: SourceFile) -> Iterator[tuple[int, Requirement]]:
    """Yield the valid requirements that apply to this machine."""
    from packaging.markers import UndefinedComparison
    from packaging.requirements import InvalidRequirement, Requirement

    for line, text in _lines(source):
        try:
            requirement = Requirement(text[:_LONGEST])
            here = requirement.marker is None or requirement.marker.evaluate()
        except (InvalidRequirement, UndefinedComparison, RecursionError):
            continue  # check_lines reports invalid lines
        if here:
            yield line, requirement


def required(folder: Path) -> set[str]:
    """Return the names of the packages that a model's folder requires on this machine, normalized like pip's."""
    from packaging.utils import canonicalize_name

    return {canonicalize_name(one.name) for _, one in _parsed(SourceFile(NAME, folder))}


def _source(folder: Folder) -> SourceFile:
    return folder.find(NAME) or SourceFile(folder.full(NAME), folder.root)


def check_lines(folder: Folder) -> Iterator[Broken]:
    """Every line is ``name`` or ``name>=version``: no options, addresses or paths, and nothing pip cannot read."""
    from packaging.requirements import InvalidRequirement, Requirement

    source = _source(folder)
    if more := next(islice(_all_lines(source), _MOST, None), None):
        yield source.broken(more[0], f"requires more than {_MOST} packages", "name those that the scripts import")
    for line, text in _lines(source):
        what = "an option of pip" if text.startswith("-") else "an address or a path" if SOURCE.match(text) else ""
        shown = text if len(text) <= _LONGEST else shortened(text, SHOWN, end=False)
        try:
            if len(text) > _LONGEST:
                raise InvalidRequirement(f"it has more than {_LONGEST} characters")
            if not what and Requirement(text).url:
                what = "an address or a path"
        except (InvalidRequirement, RecursionError) as error:
            reason = str(error).splitlines()[0]
            yield source.broken(line, f"{shown!r} cannot be read: {reason}", "write it as 'name>=version'")
        if what:
            yield source.broken(line, f"{shown!r} is {what}", "name packages of the package index only")


def check_duplicates(folder: Folder) -> Iterator[Broken]:
    """No package is listed twice."""
    from packaging.utils import canonicalize_name

    source, seen = _source(folder), dict[str, int]()
    for line, requirement in _parsed(source):
        name = canonicalize_name(requirement.name)
        if name in seen:
            message = f"{requirement.name!r} is already required in line {seen[name]}"
            yield source.broken(line, message, "keep one of the two lines")
        seen.setdefault(name, line)


def check_torch(folder: Folder) -> Iterator[Broken]:
    """``torch`` has a lowest version: an export written for one exporter may fail with another."""
    source = _source(folder)
    for line, requirement in _parsed(source):
        if requirement.name.lower() == "torch" and not requirement.specifier:
            yield source.broken(line, "'torch' has no version", "write the oldest that works, such as 'torch>=2.9'")


def check_versions(folder: Folder) -> Iterator[Broken]:
    """The required versions can be installed together with those that the zoo is tested with."""
    from packaging.utils import canonicalize_name

    source = _source(folder)
    wanted = list(_parsed(source))
    names = {canonicalize_name(requirement.name) for _, requirement in wanted}
    file = "constraints-paddle.txt" if names & set(PADDLE) else "constraints.txt"
    pinned = _pins(SourceFile(file, folder.root))
    for line, requirement in wanted:
        pin = pinned.get(canonicalize_name(requirement.name))
        if pin is not None and not requirement.specifier.contains(pin, prereleases=True):
            message = f"'{requirement.name}{requirement.specifier}' excludes {pin}, which {file} pins"
            yield source.broken(line, message, f"allow {pin}")


def _pins(source: SourceFile) -> dict[str, str]:
    from packaging.utils import canonicalize_name

    pins: dict[str, str] = {}
    for _, requirement in _parsed(source):
        for specifier in requirement.specifier:
            if specifier.operator == "==" and not specifier.version.endswith("*"):
                pins[canonicalize_name(requirement.name)] = specifier.version
    return pins
