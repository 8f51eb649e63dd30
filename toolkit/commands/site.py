"""Write an HTML page about all models of the zoo, from their stored results.

With --write_docs, also write the model tables of the READMEs, docs/reference/zoo.md, its Chinese twin and
example/README.md, from the same results and the zoo.yaml of each model, and the table of all flags,
docs/reference/flags.md. With --draw, first run the models with stored metrics on the first sample of their data, and
store the answers (answer.yaml, answer.webp in the model's folder), which the page shows; models whose files or data are
not here are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import ROOT
from toolkit.arguments import Parser


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the page and, as the flags ask, the answers and the tables; print their paths.

    Returns 1 if an answer could not be drawn.
    """
    parser = Parser("teco site", __doc__)
    out = "output file (default: site.html)"
    parser.add_argument("--out", type=Path, default=Path("site.html"), metavar="FILE", help=out)
    parser.add_argument(
        "--write_docs",
        action="store_true",
        help="also write the tables of the READMEs, docs/reference/zoo*.md and docs/reference/flags.md",
    )
    what = "first store an answer of each of these models (default: all whose files are here)"
    parser.add_argument("--draw", nargs="*", metavar="MODEL", help=what)
    args = parser.parse_args(argv)
    from model_config.reports import build_site, write_tables

    failed = args.draw is not None and _draw(args.draw, root)
    written = []
    if args.write_docs:
        from toolkit.flags_page import write_flags

        written = [*write_tables(root), write_flags(root)]
    build_site(root, args.out)
    for path in (*written, args.out):
        print(f"{path}: written")
    return int(failed)


def _draw(names: Sequence[str], root: Path) -> bool:
    """Store the answers, print a line per model, and return whether one could not be drawn."""
    from toolkit.drawn_answers import draw, drawable
    from toolkit.zoo import find_model, load_zoo

    models = load_zoo(root).models
    chosen = [find_model(name, models)[0] for name in names] or drawable(models)
    if not chosen:
        raise ConfigError("--draw: no model with stored metrics has its files here; run teco check CASE --update first")
    failed = False
    for line in draw(chosen):
        bad = line.startswith("warning: ")
        print(line, file=sys.stderr if bad else sys.stdout)
        failed |= bad
    return failed
