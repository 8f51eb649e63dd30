"""Write a model repository for the Triton Inference Server from models of the zoo, or ONNX files.

Each network gets a folder with config.pbtxt (inputs, outputs, batching as the model allows it), its ONNX file and its
labels. A model of several networks, such as an encoder and a decoder, becomes several models, without the task's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.served_models import source_of
from utils.tasks.find import add_contrib


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the repository; return 0."""
    parser = Parser("teco export-repository", __doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]MODEL", help="models of the zoo, or ONNX files")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the repository")
    add("--max_batch", type=int, default=32, metavar="N", help="most rows of a batch (default: %(default)s)")
    args = parser.parse_args(argv)
    if args.max_batch < 1:
        raise ConfigError(f"--max_batch {args.max_batch} must be at least 1")
    from serve.triton_repository import export_repository

    add_contrib(root)
    sources = [source_of(word, "onnx", rows=args.max_batch, root=root) for word in args.models]
    for folder in export_repository(sources, args.out, args.max_batch):
        print(f"written: {folder}")
    return 0
