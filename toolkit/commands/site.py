"""Write one HTML page about the whole zoo, from the figures stored beside the models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from toolkit.arguments import Parser


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the page and say where it is."""
    parser = Parser("teco site", __doc__)
    parser.add_argument("--out", type=Path, default=Path("site.html"), metavar="FILE", help="default: site.html")
    out = parser.parse_args(argv).out
    from model_config.reports import build_site

    build_site(root, out)
    print(f"{out}: written")
    return 0
