"""Copy a model, with weights, data and its case, into a project; or download files of packages, installing nothing.

A model's folder is copied below the current folder: example/DOMAIN/MODEL, and its case into model_config/model.yaml.
A package's files are put into a cache, by version and hash, and used as --data_path fetch:NAME/path and
--ckpt fetch:NAME/path. docs/reference/data.md lists the licences. A name that is both is the package; DOMAIN/MODEL is
the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, separated
from tecoinfer_modelzoo.formatting import aligned
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser, add_zoo_flag
from toolkit.data_page import rows_of_model, write_page
from toolkit.model_copies import Copied, copy_model, export_needs
from toolkit.output import print_or_write
from toolkit.zoo import Model, find_model, load_zoo
from utils.fetch import Package, fetched, find_package, kept, packages, remove
from utils.tasks.find import add_contrib

SCHEMA_VERSION = 1
"""Version of the JSON output."""

COLUMNS = ("name", "size", "kept", "what", "licence")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """List, fetch or remove packages, or copy models; return 1 if some could not be fetched, 2 if none could."""
    parser = Parser("teco fetch", __doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="models to copy, packages to fetch (default: list all packages)")
    add("--out", type=Path, metavar="DIR", help="project into which models are copied (default: this folder)")
    add_zoo_flag(parser)
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
    names = list(dict.fromkeys(args.names))
    known = packages()
    models = [_model(name, args, root) for name in names if name not in known]
    chosen = [find_package(name) for name in names if name in known]
    _check_kinds(models, chosen, args)
    if args.remove:
        for package in chosen:
            freed = remove(package)
            print(f"{package.name}: {megabytes(freed)} freed" if freed else f"{package.name}: not in the cache")
        return 0
    return _fetch(chosen, models, args, root)


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


def _model(name: str, args: argparse.Namespace, root: Path) -> Model:
    """Return the model of a name that is not a package's; raise ConfigError if it is neither."""
    try:
        return find_model(name, load_zoo(root, args.zoo).models)[0]
    except ConfigError as error:
        near = did_you_mean(name, packages())
        what = f"unknown package {name!r};{near}" if near else f"{name!r} is not a package of 'teco fetch';"
        raise ConfigError(f"{what} as a model: {error}") from error


def _check_kinds(models: Sequence[Model], chosen: Sequence[Package], args: argparse.Namespace) -> None:
    """Raise ConfigError for a flag of packages with a model, or of models without one."""
    flag = next((flag for flag in ("remove", "from") if getattr(args, "archive" if flag == "from" else flag)), "")
    if models and flag:
        raise ConfigError(f"--{flag} is for packages, and {models[0].name!r} is a model; leave one of them out")
    if not models and args.out is not None:
        raise ConfigError(f"--out is for models, and {chosen[0].name!r} is a package; leave it out")


def _fetch(chosen: Sequence[Package], models: Sequence[Model], args: argparse.Namespace, root: Path) -> int:
    """Fetch packages and copy models; one that fails is reported in one line, and the others are still fetched."""
    found: list[Mapping[str, Any]] = []
    copied = _copied(models, args, (args.out or root).absolute())
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
        with_models = {"models": copied} if models else {}
        print_or_write(_as_json(found) | with_models, args.json, ())
    done = len(found) + len(copied)
    return 0 if done == len(chosen) + len(models) else 1 if done else 2


def _copied(models: Sequence[Model], args: argparse.Namespace, project: Path) -> list[dict[str, Any]]:
    """Copy models into a project; return them as plain data."""
    found = []
    for model in models:
        try:
            project.mkdir(parents=True, exist_ok=True)
            copied = copy_model(model, project)
        except OSError as error:
            print(f"error: --out {project} cannot be created: {error.strerror}; choose another folder", file=sys.stderr)
            continue
        except TecoInferError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        found.append({"name": model.name, "domain": model.domain, "root": str(project), **asdict(copied)})
        if args.path:
            print(project / copied.folder, flush=True)
        elif args.json != STDOUT:
            print("\n".join(_lines(model, copied, project)), flush=True)
    return found


def _lines(model: Model, copied: Copied, project: Path) -> list[str]:
    """Return what was copied, the licences of its data, and what to run."""
    check = f"  teco check {' '.join(copied.cases)}" if copied.cases else f"  teco info {model.name}"
    lines = [f"{copied.folder}: {copied.files} files, {megabytes(copied.size)}, from {model.root}"]
    lines += [f"{copied.config}: {', '.join(copied.cases)}"] if copied.cases else []
    needs = export_needs(project, copied.folder)
    lines += [f"{path}: data that it shares with another model" for path in copied.shared]
    lines += [f"licence: {row.what}: {row.licence}; {row.use}" for row in rows_of_model(model)]
    lines += [f"it reads files of packages: teco fetch {' '.join(copied.packages)}"] if copied.packages else []
    return [*lines, "next:", f"  teco run {model.name} valid", *([f"  {needs}"] if needs else []), check]


def described(package: Package, folder: Path | None) -> dict[str, Any]:
    """Return a package as plain data, with its folder."""
    return {**package.as_json, "path": None if folder is None else str(folder)}


def megabytes(size: int) -> str:
    """Return a number of bytes as text in MB (10^6 bytes)."""
    return f"{size / 1e6:.1f} MB"


def _as_json(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "packages": found}
