"""Export CLIP or SigLIP as a pair of ONNX models, NAME_image*.onnx and NAME_text*.onnx.

``--weights`` is a folder as transformers' ``save_pretrained`` writes it, with ``tokenizer.json``; or ``random``: small
networks for functional and speed checks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.datasets.image.captions import load_captions
from utils.export.forms import add_common
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.image_text_models import KINDS, export_pair, image_text_pair
    from utils.export.networks.random_weights import RANDOM

DATA = HERE.parent / "digit_clip" / "data"


def main() -> int:
    """Write the requested forms, and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser, HERE)
    parser.add_argument("--weights", required=True, help="folder that save_pretrained wrote, or random")
    parser.add_argument("--arch", choices=KINDS, default=KINDS[0], help="of random weights (default: %(default)s)")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, if it is not in the folder")
    parser.add_argument("--template", nargs="+", help="texts with {} for a class name (default: the papers')")
    parser.add_argument("--case", choices=("kept", "lower"), help="case of texts in training, if not the tokenizer's")
    args = parser.parse_args()
    texts: list[str] = []
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
        texts = [text for captions in load_captions({"data": DATA}).targets or () for text in captions]
    note = {key: getattr(args, key) for key in ("template", "case") if getattr(args, key) is not None}
    pair = image_text_pair(args.weights, args.arch, tokenizer=args.tokenizer, texts=texts, note=note)
    how = {"batch": args.batch_size, "forms": args.forms, "exporter": args.exporter}
    for result in export_pair(pair, args.out / pair.name, **how):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
