"""List the models of the clone or of your project, in example/ and contrib/example/, and those of other zoos."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.flags import add_json_flag, separated
from tecoinfer_modelzoo.formatting import aligned, number
from toolkit.arguments import Parser, add_zoo_flag
from toolkit.output import print_or_write
from toolkit.scorecard import direction_words, last_metrics
from toolkit.zoo import Model, load_zoo

SCHEMA_VERSION = 1  # version of the JSON; raised when a field is removed or changes its meaning
COLUMNS = ("name", "domain", "place", "steps", "targets", "metric")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print all models, or those that match every word."""
    parser = Parser("teco list", __doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="list only models whose line contains all words")
    add_zoo_flag(parser)
    add_json_flag(parser)
    args = parser.parse_args(separated(argv))
    zoo = load_zoo(root, args.zoo)
    for problem in zoo.problems:
        print(f"warning: {problem}", file=sys.stderr)
    kept = [found for found in map(describe, zoo.models) if _matches(_row(found), args.words)]
    if not kept:
        raise ConfigError(f"no model matches {' '.join(args.words)!r}; 'teco list' lists all {len(zoo.models)}")
    data = {"schema_version": SCHEMA_VERSION, "kind": "models", "models": kept}
    print_or_write(data, args.json, aligned([COLUMNS, *map(_row, kept)]))
    return 0


def _matches(row: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether a line contains all words, ignoring case."""
    line = " ".join(row).lower()
    return all(word.lower() in line for word in words)


def describe(model: Model) -> dict[str, Any]:
    """Return the line of a model as plain data."""
    return {
        "name": model.name,
        "domain": model.domain,
        "place": model.place,
        "path": model.path,
        "root": str(model.root),
        "cases": [case.name for case in model.cases],
        "steps": list(model.scripts),
        "targets": model.targets,
        "metric": last_metrics(model),
    }


def _row(found: dict[str, Any]) -> list[str]:
    metrics = _metrics(found["metric"])
    steps, targets = (" ".join(found[key]) for key in ("steps", "targets"))
    return [found["name"], found["domain"], found["place"], steps, targets or "-", ", ".join(metrics) or "-"]


def _metrics(stored: Sequence[dict[str, Any]]) -> list[str]:
    """Return the metric values of a model, each with its targets, and with its case if there are several cases."""
    targets: dict[tuple[str, str], list[str]] = {}
    several = len({metric["case"] for metric in stored}) > 1
    for metric in stored:
        value = number(metric["value"]) if isinstance(metric["value"], float) else str(metric["value"])
        words = ", ".join(filter(None, [f"case {metric['case']}" if several else "", direction_words(metric)]))
        targets.setdefault((value, words), []).append(str(metric["target"]))
    return [
        f"{value} ({', '.join(filter(None, [' '.join(dict.fromkeys(names)), words]))})"
        for (value, words), names in targets.items()
    ]
