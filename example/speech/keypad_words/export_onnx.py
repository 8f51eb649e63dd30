"""Export the network of the keypad words: keypad_words.onnx, keypad_words_dyn.onnx, keypad_words_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from words import FEATURES, LABELS

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli
from utils.preprocess.audio.features import settings_to_json

with needed(__file__):
    import torch
    from model import FRAMES, MELS, KeypadWords

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PROVENANCE = {
    "source": "example/speech/keypad_words/model.py",
    "weights": "keypad_words.pth, trained by train.py on Asterisk's English prompts (Allison Smith; CC-BY-SA-3.0)",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "keypad_words.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    results = export_onnx(
        load_weights(KeypadWords(len(LABELS)), args.weights),
        torch.randn(1, FRAMES, MELS, generator=torch.Generator().manual_seed(0)) - 6,
        args.out / "keypad_words",
        input_names=["features"],
        output_names=["logits"],
        labels=list(LABELS),
        sample_rate=FEATURES.rate,
        provenance=PROVENANCE,
        notes={"features": json.loads(settings_to_json(FEATURES))},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
