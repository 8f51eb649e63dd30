"""Write the GE2E voice encoder, voice_encoder*.onnx, of fetched weights; PyTorch is not needed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from model import FRAMES, MELS, build, checked
from torch_file import read

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ModelError, add_version
from utils.export.constructed import write_constructed
from utils.export.forms import add_forms
from utils.export.onnx_files import ModelNotes
from utils.fetch import fetched
from utils.pipeline import cli
from utils.preprocess.audio.features import KEY, LogMel, settings_to_json

HERE = Path(__file__).resolve().parent
HEARD = LogMel(bands=MELS, pad="constant", log="none")
"""Energies in 40 mel bands of 25 ms every 10 ms, without a logarithm: the features of Resemblyzer's encoder."""

STEP = 77
"""Frames from one window to the next: 1.3 windows a second, Resemblyzer's rate."""

THRESHOLD = 0.75
"""Similarity threshold, about that of the equal error rate on the README's voices; the weights come without one."""


def notes() -> ModelNotes:
    """Return the metadata of the files."""
    return ModelNotes(
        provenance={"source": "pip Resemblyzer 0.1.4", "weights": "Resemblyzer's pretrained.pt, Apache-2.0"},
        notes={
            KEY: json.loads(settings_to_json(HEARD)),
            "verification": {"threshold": THRESHOLD, "frames": FRAMES, "step": STEP, "level": -30.0},
        },
    )


def main() -> int:
    """Write the files and print the largest relative error of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    parser.add_argument("--weights", type=Path, help="a pretrained.pt of Resemblyzer (default: the fetched one)")
    add_forms(parser)
    args = parser.parse_args()
    file = args.weights or fetched("voice_encoder") / "resemblyzer" / "pretrained.pt"
    found = read(file)
    if not isinstance(found, dict) or not isinstance(found.get("model_state"), dict):
        raise ModelError(f"{file}: has no 'model_state'; give Resemblyzer's pretrained.pt")
    weights = checked(found["model_state"], str(file))
    heard = np.random.default_rng(0).gamma(0.3, 0.2, (2, FRAMES, MELS)).astype(np.float32)
    cases = [[heard[:1]], [heard]]
    stem = args.out / "voice_encoder"
    for one in write_constructed(lambda free: build(weights, free), cases, stem, notes(), args.forms):
        print(one, flush=True)
    return 0


if __name__ == "__main__":
    cli.run(main)
