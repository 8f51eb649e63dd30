"""Write dlib's face descriptor, dlib_face*.onnx, and the detector, centerface*.onnx, both of fetched weights."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from model import SIZE, build, read_weights

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ModelError, add_version
from utils.export.constructed import write_constructed
from utils.export.forms import add_forms
from utils.export.onnx_files import ModelNotes
from utils.fetch import fetched
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent
MANIFEST = "package/model/face_recognition_model-weights_manifest.json"
MEAN = (122.782, 117.001, 104.298)
"""Mean of each channel, 0 to 255: dlib subtracts it before it divides by 256, face-api before it divides by 255."""

POINTS = ((0.2255, 0.216), (0.752, 0.216), (0.490, 0.628), (0.254, 0.780), (0.726, 0.780))
"""The five points of dlib's mean face, in its unit square; face chips pad the square by a quarter."""

NOTES = ModelNotes(
    preprocess={"resize_shape": SIZE, "crop_shape": SIZE, "mean": [m / 255 for m in MEAN], "std": [1.0] * 3},
    provenance={"source": "npm @vladmandic/face-api 1.7.15", "weights": "face-api's copy of dlib's, 8 bits, MIT"},
    notes={
        "verification": {
            "compare": "euclid",
            "threshold": 0.6,
            "points": [[(x + 0.25) / 1.5, (y + 0.25) / 1.5] for x, y in POINTS],
        }
    },
)


def write_detector(out: Path, forms: tuple[str, ...]) -> None:
    """Export the detector with the script of its folder.

    Raises:
        ModelError: the export failed; the script has printed the reason.
    """
    script = HERE.parent / "centerface" / "export_onnx.py"
    command = [sys.executable, str(script), "--out", str(out), "--forms", *forms]
    if subprocess.run(command, check=False).returncode:
        raise ModelError(f"{script} did not write the detector; see its message above")


def main() -> int:
    """Write the files and print the largest relative error of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    weights = read_weights(fetched("face_api") / MANIFEST)
    faces = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 3, SIZE, SIZE)).astype(np.float32)
    cases = [[faces[:1]], [faces]]
    for one in write_constructed(lambda free: build(weights, free), cases, args.out / "dlib_face", NOTES, args.forms):
        print(one, flush=True)
    write_detector(args.out, tuple(args.forms))
    return 0


if __name__ == "__main__":
    cli.run(main)
