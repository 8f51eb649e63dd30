"""Export language_id to ONNX: language_id.onnx, language_id_dyn.onnx, language_id_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.text.texts import load_texts
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import LONGEST, TOKENS, LanguageId

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
LENGTH = 32
PROVENANCE = {
    "source": "example/nlp/language_id/model.py",
    "weights": "language_id.pth, trained by train.py on telephone prompts in five languages (CC BY-SA 3.0, CC BY 3.0)",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "language_id.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    labels = sorted(set(load_texts(HERE / "data" / "train.tsv").targets or ()))
    ids = torch.randint(1, TOKENS, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    results = export_onnx(
        load_weights(LanguageId(len(labels)), args.weights),
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        args.out / "language_id",
        output_names=["logits"],
        dynamic={name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")},
        labels=labels,
        provenance=PROVENANCE,
        notes={
            "tokenizer": json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8")),
            "vocabulary_size": TOKENS,
            "max_length": LONGEST,
        },
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
