"""Write one HTML page about the whole zoo, from the figures stored beside the models.

With --write_docs also the tables of the zoo in README.md, README.zh-CN.md and example/README.md, from the same figures
and the zoo.yaml of each model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from toolkit.arguments import Parser


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the page, and the tables where they are asked for, and say where they are."""
    parser = Parser("teco site", __doc__)
    parser.add_argument("--out", type=Path, default=Path("site.html"), metavar="FILE", help="default: site.html")
    parser.add_argument("--write_docs", action="store_true", help="also write the tables of the zoo's READMEs")
    args = parser.parse_args(argv)
    from model_config.reports import build_site, write_tables

    written = write_tables(root) if args.write_docs else []
    build_site(root, args.out)
    for path in (*written, args.out):
        print(f"{path}: written")
    return 0
