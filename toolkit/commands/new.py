"""Create a model: a folder that passes the structure check and runs, and its case in model.yaml.

The folder is made from the template of the task, with a tiny placeholder model to replace and generated sample data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.scaffold import create
from toolkit.zoo import DOMAINS, domains
from utils.tasks.find import tasks


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Create the model and print the next steps."""
    parser = Parser("teco new", __doc__)
    parser.add_argument("domain", metavar="DOMAIN", help=f"such as {', '.join(DOMAINS)}")
    parser.add_argument("model", metavar="MODEL", help="name of the model's folder, such as mobilenet_v2")
    parser.add_argument("--task", metavar="NAME", default="", help="task of the template (default: the domain's)")
    parser.add_argument("--contrib", action="store_true", help="create the model below contrib/")
    args = parser.parse_args(argv)
    made = create(args.domain, args.model, task=args.task, contrib=args.contrib, root=root)
    print(f"{made.folder}: {made.files} files; case {args.model!r} was appended to {made.config}")
    known = domains(root)
    if args.domain not in known and args.domain not in tasks():
        near = did_you_mean(args.domain, known)
        print(f"note: {args.domain!r} is a new domain{';' if near else ''}{near}")
    print(NEXT.format(folder=made.folder, model=args.model))
    return 0


NEXT = """\
next:
  pip install -r {folder}/requirements.txt   # for the export only
  teco run {model} export
  teco run {model} valid
  teco check {model}
then put your own network into model.py and export_onnx.py, add your data, and describe both in README.md;
docs/adding_a_model.md shows every step"""
