"""Begin a model: a folder that passes the structure check and runs at once, and its case in model.yaml.

The network is tiny and has random weights: functional only, until you put your own model in. The pictures are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.config import ROOT
from toolkit.arguments import Parser, did_you_mean
from toolkit.scaffold import create
from toolkit.zoo import DOMAINS


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Create the model and print what to do next."""
    parser = Parser("teco new", __doc__)
    parser.add_argument("domain", metavar="DOMAIN", help=f"such as {', '.join(DOMAINS)}")
    parser.add_argument("model", metavar="MODEL", help="name of the model's folder, such as mobilenet_v2")
    parser.add_argument("--contrib", action="store_true", help="below contrib/, where contributed models belong")
    args = parser.parse_args(argv)
    made = create(args.domain, args.model, contrib=args.contrib, root=root)
    print(f"{made.folder}: {made.files} files; its case {args.model!r} stands at the end of {made.config}")
    if args.domain not in DOMAINS:
        near = did_you_mean(args.domain, DOMAINS)
        print(f"note: {args.domain!r} is a new domain{';' if near else ''}{near}")
    print(NEXT.format(folder=made.folder, model=args.model))
    return 0


NEXT = """\
next:
  pip install -r {folder}/requirements.txt   # for the export only
  teco run {model} export
  teco run {model} valid
  teco check {model}
then put your own network into model.py and export_onnx.py, your data into images/ or data/, and say in README.md
what is true of them; docs/adding_a_model.md walks through it"""
