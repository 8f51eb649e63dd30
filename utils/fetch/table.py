"""Tables of packages: ``utils/fetch/*.yaml`` of the core, then of contrib."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import utils
from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, build_yaml, check_yaml, compose_yaml, keys_twice, yaml_text
from utils.fetch.package import KINDS, Package

_TEXTS = ("name", "what", "registry", "package", "version", "sha256", "licence", "read_in", "use")
_OPTIONAL = ("kind", "attribution", "pool")
_NUMBERS = ("size", "unpacked")
KEYS = (*_TEXTS, *_NUMBERS, "members", *_OPTIONAL)
"""Keys of a row; ``kind``, ``attribution`` and ``pool`` are optional."""

_MOST_NOTED = 20
"""Maximum errors of one kind that are reported per row."""

_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "name": (re.compile(r"[a-z0-9][a-z0-9_]*", re.ASCII), "use lower-case letters, digits and underscores"),
    "package": (
        re.compile(r"@?[A-Za-z0-9][\w.+~-]*(/[A-Za-z0-9][\w.+~-]*)?", re.ASCII),
        "write it as the registry does",
    ),
    "version": (re.compile(r"[A-Za-z0-9][\w.+~:!-]*", re.ASCII), "write it as the registry does, in quotes"),
    "sha256": (re.compile(r"[0-9a-f]{64}", re.ASCII), "write 64 hexadecimal digits, as sha256sum does"),
    "pool": (
        re.compile(r"[a-z]+(/[\w.+~-]+)+", re.ASCII),
        "write the folder below pool/, such as main/a/asterisk-core-sounds",
    ),
}


_read_too: list[Path] = []


def read_contrib(root: Path | None) -> None:
    """Also read the tables in ``contrib/`` of a clone, without adding it to the path; replaces an earlier one."""
    _read_too[:] = [] if root is None else [root / "contrib" / "utils"]


def packages() -> dict[str, Package]:
    """Return the rows by name; raise ConfigError with one line per error in the tables."""
    mistakes: list[str] = []
    found: dict[str, Package] = {}
    for path in _tables():
        for package in _read(path, mistakes):
            first = found.setdefault(package.name, package)
            if first is not package:
                mistakes.append(f"{package.where}: name {package.name!r} is used in {first.where}; rename it")
    if mistakes:
        raise ConfigError(*mistakes)
    return found


def find_package(name: str) -> Package:
    """Return the row of this name; raise ConfigError if there is none, or for errors in the tables."""
    known = packages()
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"unknown package {name!r};{hint} packages: {', '.join(known)} ('teco fetch' lists them)")
    return known[name]


def read_table(path: Path) -> list[Package]:
    """Return the rows of one file; raise ConfigError with one line per error."""
    mistakes: list[str] = []
    found = list(_read(path, mistakes))
    if mistakes:
        raise ConfigError(*mistakes)
    return found


def _tables() -> list[Path]:
    own = Path(__file__).parent
    # Folders of the package utils other than another copy of the zoo, which has a file of this name.
    others = dict.fromkeys(Path(one) / "fetch" for one in [*map(Path, utils.__path__), *_read_too])
    meant = [one for one in others if (one / "__init__.py").is_file() and not (one / Path(__file__).name).exists()]
    return [path for place in (own, *meant) for path in sorted(place.glob("*.yaml"))]


def rows_of(path: Path, mistakes: list[str]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield location (file and line) and content of each row of a YAML list; append errors to ``mistakes``."""
    try:
        top = compose_yaml(yaml_text(path))
        if top is not None:
            check_yaml(top)
        data = None if top is None else build_yaml(top)
    except OSError as error:
        mistakes.append(f"{path}: cannot be read ({error.strerror or error}); check the file")
        return
    except YamlError as error:
        mistakes.append(f"{path}{f':{error.line}' if error.line else ''}: not YAML: {error.reason}")
        return
    if top is None or data is None:
        return
    if not isinstance(data, list):
        mistakes.append(f"{path}: does not contain a list of rows; start each row with '- name:'")
        return
    for node, row in zip(top.value, data, strict=True):
        where = f"{path}:{node.start_mark.line + 1}"
        if not isinstance(row, dict):
            mistakes.append(f"{where}: {shown_value(row)} is not a row; write a mapping, such as '- name: minilm'")
            continue
        twice = [str(key.value) for key in keys_twice(node)]
        mistakes += [f"{where}: key {shown_value(key)} occurs twice; remove one" for key in twice[:_MOST_NOTED]]
        if not twice:
            yield where, row


def check_keys(
    row: Mapping[Any, Any], known: Sequence[str], wanted: Sequence[str], note: Callable[[str], None]
) -> None:
    """Report unknown and missing keys."""
    others = [key for key in row if key not in known]
    for key in others[:_MOST_NOTED]:
        note(f"unknown key {shown_value(key)};{did_you_mean(str(key), known)} keys: {', '.join(known)}")
    if len(others) > _MOST_NOTED:
        note(f"{len(others) - _MOST_NOTED} more unknown keys; remove them")
    for key in wanted:
        if key not in row:
            note(f"missing key {key!r}; add it")


def check_text(row: Mapping[Any, Any], key: str, note: Callable[[str], None]) -> None:
    """Report a value that is not a one-line string."""
    value = row[key]
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        note(f"{key} {shown_value(value)} is not a one-line string; quote it if it looks like a number")


def _read(path: Path, mistakes: list[str]) -> Iterator[Package]:
    for where, row in rows_of(path, mistakes):
        before = len(mistakes)
        _check(row, lambda text, at=where: mistakes.append(f"{at}: {text}"))  # type: ignore[misc]
        if len(mistakes) > before:
            continue
        kind = row.get("kind") or KINDS[row["registry"]][0]
        yield Package(**{**row, "members": tuple(row["members"]), "kind": kind, "where": where})


def _check(row: Mapping[Any, Any], note: Callable[[str], None]) -> None:
    check_keys(row, KEYS, (*_TEXTS, *_NUMBERS, "members"), note)
    for key in (*_TEXTS, *_OPTIONAL):
        if key not in row:
            continue
        check_text(row, key, note)
        form, fix = _FORMS.get(key, (None, ""))
        if form is not None and isinstance(row[key], str) and not form.fullmatch(row[key]):
            note(f"{key} {shown_value(row[key])} is invalid; {fix}")
    for key in _NUMBERS:
        value = row.get(key, 1)
        if type(value) is not int or value < 1:
            note(f"{key} {shown_value(value)} is not a byte count; write a positive integer")
    _check_registry(row, note)
    members = row.get("members", ["*"])
    if not isinstance(members, list) or not members:
        note(f"members {shown_value(members)} is not a list; write patterns, such as [folder/*.onnx]")
        return
    for pattern in members:
        if not isinstance(pattern, str) or _unsafe(pattern):
            shown = shown_value(pattern)
            note(f"member {shown} is not a path in an archive; write one without '..', such as folder/*.onnx")


def _check_registry(row: Mapping[Any, Any], note: Callable[[str], None]) -> None:
    registry, kind = row.get("registry"), row.get("kind")
    if not isinstance(registry, str):
        return
    kinds = KINDS.get(registry)
    if kinds is None:
        near = did_you_mean(registry, KINDS, 0.5)
        note(f"unknown registry {shown_value(registry)};{near} registries: {', '.join(KINDS)}")
        return
    if kind is not None and kind not in kinds:
        note(f"kind {shown_value(kind)} is not a kind of {registry}; use one of: {', '.join(kinds)}")
    if (registry == "debian") != ("pool" in row):
        fix = "add it, such as main/a/asterisk-core-sounds" if registry == "debian" else "leave it out"
        note(f"pool is required for debian and invalid for others; {fix}")


def _unsafe(pattern: str) -> bool:
    parts = pattern.split("/")
    return not pattern.isprintable() or "\\" in pattern or any(part in ("", ".", "..") for part in parts)
