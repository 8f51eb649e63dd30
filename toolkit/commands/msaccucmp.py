"""Compare or convert training dumps with the flags of Ascend's msaccucmp, for scripts that use them.

compare -m B.h5 -g A.h5           the same as 'teco train compare A.h5 B.h5': -g is the reference
convert -d DUMP -out DIR [-v 2]   write the arrays of a dump, or of all dumps of a folder, as .npy files
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.commands.compare_train import EPILOG, add_flags, compare
from toolkit.training.dump.convert import convert

KINDS = ("compare", "convert")


def main(argv: Sequence[str]) -> int:
    """Compare or convert; return 1 if an operator is bad."""
    kind = argv[0] if argv else "--help"
    if kind in ("-h", "--help", "--version"):
        Parser("teco msaccucmp compare|convert", __doc__).parse_args([kind])
    if kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r};{did_you_mean(kind, KINDS)} kinds: {', '.join(KINDS)}")
    return _compare(argv[1:]) if kind == "compare" else _convert(argv[1:])


def _compare(argv: Sequence[str]) -> int:
    parser = Parser("teco msaccucmp compare", __doc__, EPILOG)
    parser.add_argument("-m", dest="b", metavar="B.h5", type=Path, required=True, help="dump of the run to judge")
    parser.add_argument("-g", dest="a", metavar="A.h5", type=Path, required=True, help="dump of the reference run")
    add_flags(parser)
    return compare(parser.parse_args(argv))


def _convert(argv: Sequence[str]) -> int:
    parser = Parser("teco msaccucmp convert", __doc__)
    parser.add_argument("-d", dest="dump", metavar="DUMP", type=Path, required=True, help="a dump or a folder of dumps")
    parser.add_argument("-out", dest="out", metavar="DIR", type=Path, required=True, help="folder for the .npy files")
    version = "ignored: the format of a dump is detected (default: 2)"
    parser.add_argument("-v", dest="version", choices=("1", "2"), default="2", help=version)
    args = parser.parse_args(argv)
    files = list(convert(args.dump, args.out))
    print(f"{plural(len(files), 'file')} written to {args.out}")
    return 0
