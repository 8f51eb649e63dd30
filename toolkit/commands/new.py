"""Create a model: a folder that passes the structure check and runs, and its case in model.yaml.

The folder is made from the template of the task, with a tiny placeholder model to replace and generated sample data.
With --ckpt it is made from an existing ONNX file (and --data) instead, and runs at once; with --arch it exports a
network of torchvision or timm. `teco new --from digits my_model` copies a model of the zoo under another name, in the
same domain, with its weights, data and cases.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser, add_zoo_flag
from toolkit.model_copies import copy_model, export_needs, has_requirements
from toolkit.scaffold import Given, create
from toolkit.zoo import DOMAINS, domains, find_model, load_zoo
from utils.tasks import Template
from utils.tasks.find import default_of, tasks


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Create the model and print the next steps."""
    parser = Parser("teco new", __doc__)
    parser.add_argument("domain", metavar="DOMAIN", help=f"such as {', '.join(DOMAINS)}; not with --from")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="name of the model's folder, such as mobilenet_v2")
    parser.add_argument("--from", dest="source", metavar="MODEL", default="", help="copy this model of the zoo")
    add_zoo_flag(parser)
    parser.add_argument("--task", metavar="NAME", default="", help="task of the template (default: the domain's)")
    parser.add_argument("--contrib", action="store_true", help="create the model below contrib/")
    parser.add_argument(
        "--ckpt", metavar="FILE", type=Path, help="take this ONNX file (default task: arrays, for any model)"
    )
    parser.add_argument(
        "--data", metavar="PATH", type=Path, help="with --ckpt: take this data (default: random samples)"
    )
    parser.add_argument(
        "--default",
        metavar="FLAG=VALUE",
        action="append",
        default=[],
        help="with --ckpt: default of a flag: metric=top1",
    )
    arch = "export this network: torchvision:NAME or timm:NAME (random weights in the case)"
    parser.add_argument("--arch", metavar="NAME", default="", help=arch)
    args = parser.parse_args(argv)
    if args.source:
        return _copy(args, parser, root)
    if args.model is None:
        parser.error("the following arguments are required: MODEL")
    if args.zoo:
        parser.error("--zoo needs --from MODEL")
    if args.ckpt is None and (args.data is not None or args.default):
        parser.error("--data and --default need --ckpt FILE")
    if args.ckpt is not None and args.arch:
        parser.error("--ckpt FILE is a model already, and --arch NAME another one; leave one of them out")
    given = (
        None if args.ckpt is None else Given(args.ckpt, () if args.data is None else (args.data,), tuple(args.default))
    )
    task = args.task or (_task_of_file(args.domain) if given is not None else "")
    made = create(args.domain, args.model, task=task, contrib=args.contrib, root=root, given=given, arch=args.arch)
    print(f"{made.folder}: {made.files} files; case {args.model!r} was appended to {made.config}")
    known = domains(root)
    if args.domain not in known and args.domain not in tasks():
        near = did_you_mean(args.domain, known)
        print(f"note: {args.domain!r} is a new domain{';' if near else ''}{near}")
    after = NEXT_OF_FILE if given is not None else NEXT_OF_ARCH if args.arch else NEXT
    install = _install(root / made.folder, made.folder)
    print(with_page_paths(after.format(folder=made.folder, model=args.model, install=install)))
    return 0


def _copy(args: argparse.Namespace, parser: Parser, root: Path) -> int:
    """Copy a model under another name, and print the next steps."""
    if args.model is not None:
        parser.error(f"--from takes the domain of {args.source}; pass only the name of the copy")
    given = [flag for flag in ("task", "contrib", "ckpt", "data", "default", "arch") if getattr(args, flag)]
    if given:
        parser.error(f"--from and --{given[0]} exclude each other; leave one out")
    model, _ = find_model(args.source, load_zoo(root, args.zoo).models)
    made = copy_model(model, root, args.domain)
    cases = f"; case {', '.join(made.cases)} was appended to {made.config}" if made.cases else ""
    print(f"{made.folder}: {made.files} files of {model.domain}/{model.name}{cases}")
    for path in made.shared:
        print(f"{path}: data that it shares with another model")
    if made.packages:
        print(f"it reads files of packages: teco fetch {' '.join(made.packages)}")
    needs = export_needs(root, made.folder)
    print(NEXT_OF_COPY.format(folder=made.folder, model=args.domain, install=f"  {needs}\n" if needs else ""))
    return 0


def _task_of_file(domain: str) -> str:
    """Return the task for a model file without --task: empty if the domain's takes files, else one for any model."""
    known = tasks()
    for own in (known.get(domain), default_of(domain, known)):
        if own is not None and own.template is not None and own.template.adoption is not None:
            return ""
    any_model = (name for name, task in known.items() if task.template is not None and _takes_any(task.template))
    return next(any_model, "")


def _takes_any(template: Template) -> bool:
    return template.adoption is not None and template.adoption.any_model


def _install(folder: Path, name: str) -> str:
    """Return the line that installs what the export needs; "" if the core install is enough."""
    if not has_requirements(folder):
        return ""
    return f"  pip install -r {name}/requirements.txt   # for the export only\n"


NEXT = """\
next:
{install}  teco run {model} export
  teco run {model} valid
  teco check {model}
then put your own network into model.py and export_onnx.py, add your data, and describe both in README.md;
docs/how-to/adding_a_model.md shows every step"""

NEXT_OF_ARCH = """\
next:
{install}  teco run {model} export
  teco run {model} valid
  teco check {model}
then export published weights or your own, add your data, and describe both in {folder}/README.md"""

NEXT_OF_COPY = """\
next:
  teco run {model} valid
{install}  teco check {model}
then put your own weights and data in the place of those there, and describe them in {folder}/README.md"""

NEXT_OF_FILE = """\
next:
  teco run {model} valid
  teco check {model}
then describe model and data in {folder}/README.md"""
