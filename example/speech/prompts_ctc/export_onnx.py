"""Export the prompts' recogniser to ONNX: prompts_ctc.onnx, prompts_ctc_dyn.onnx, prompts_ctc_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from prompts import ALPHABET, FEATURES, SILENCE

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli
from utils.preprocess.audio.features import settings_to_json

with needed(__file__):
    import torch
    from model import MARGIN, MELS, STRIDE, PromptsCTC

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
FRAMES = 480 + 2 * MARGIN
"""Frames of the static file's input: 4.8 seconds, and the silence around them."""

NOTES = {
    "features": json.loads(settings_to_json(FEATURES)),
    "speech_recognition": {"blank": 0, "stride": STRIDE, "reach": MARGIN, "margin": MARGIN, "padding": SILENCE},
}
"""Preprocessing of a recording, and the position of the output steps in it."""

PROVENANCE = {
    "source": "example/speech/prompts_ctc/model.py",
    "weights": "prompts_ctc.pth, trained by train.py on Asterisk's English prompts (Allison Smith; CC-BY-SA-3.0)",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "prompts_ctc.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    network = PromptsCTC(len(ALPHABET) + 1)
    results = export_onnx(
        load_weights(network, args.weights),
        torch.randn(1, FRAMES, MELS, generator=torch.Generator().manual_seed(0)),
        args.out / "prompts_ctc",
        input_names=["features"],
        output_names=["logits"],
        dynamic={"features": {0: "batch", 1: "frames"}},
        vocabulary=list(ALPHABET),
        sample_rate=FEATURES.rate,
        provenance=PROVENANCE,
        notes=NOTES,
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
