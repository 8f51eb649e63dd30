"""Write the trained model as ONNX, minilm_sentiment*.onnx; train it first if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.text.rated_snippets import LABELS
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    from model import network, tokenizer
    from train import DATA, EPOCHS, PARTS, TOKENS, WEIGHTS, parts, train

    from utils.export.networks.text_models import TextModel, export_text_model
    from utils.export.torch_export import load_weights

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--epochs", type=float, default=EPOCHS, help=f"of the training, if weights are missing (default: {EPOCHS})"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    weights = args.weights
    if not weights.is_file():
        # a shorter training must not be taken for the whole one later
        weights = weights if args.epochs >= EPOCHS else weights.with_name(f"{weights.stem}_short.pth")
        train(args.epochs, weights)
    elif not all((DATA / f"{part}.tsv").is_file() for part in (*PARTS, "few")):
        parts()
    made = network()
    load_weights(made, weights)
    found = TextModel(made.eval(), made.base.sizes, tokenizer(), "train.py, on rated snippets", LABELS, TOKENS)
    source = "all-MiniLM-L6-v2, tuned by example/nlp/minilm_sentiment/train.py"
    stem, forms, exporter = args.out / "minilm_sentiment", args.forms, args.exporter
    for result in export_text_model(found, stem, source=source, length=32, forms=forms, exporter=exporter):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
