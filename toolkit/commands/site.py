"""Write an HTML page about all models of the zoo, from their stored results.

With --write_docs, also write the model tables of the READMEs, docs/reference/zoo.md (English and Chinese) and
example/README.md, from the same results and the zoo.yaml of each model, and docs/reference/flags.md, the table of all
flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from toolkit.arguments import Parser


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the page and, with ``--write_docs``, the tables; print their paths."""
    parser = Parser("teco site", __doc__)
    out = "output file (default: site.html)"
    parser.add_argument("--out", type=Path, default=Path("site.html"), metavar="FILE", help=out)
    parser.add_argument(
        "--write_docs",
        action="store_true",
        help="also write the tables of the READMEs, docs/reference/zoo*.md and docs/reference/flags.md",
    )
    args = parser.parse_args(argv)
    from model_config.reports import build_site, write_tables

    written = []
    if args.write_docs:
        from toolkit.flags_page import write_flags

        written = [*write_tables(root), write_flags(root)]
    build_site(root, args.out)
    for path in (*written, args.out):
        print(f"{path}: written")
    return 0
