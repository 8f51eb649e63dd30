"""Write the trained descriptor as ONNX, cosface_orl*.onnx; train it first if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli

with needed(__file__):
    from model import POINTS, SIZE, FaceNet
    from train import STEPS, WEIGHTS, cut_faces, read_faces, train

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PREPROCESS = {"resize_shape": [SIZE, SIZE], "crop_shape": [SIZE, SIZE], "mean": [0.0], "std": [1.0]}
PROVENANCE = {"source": "example/face/cosface_orl/model.py", "weights": "train.py, on 30 people of the ORL database"}
NOTES = {"verification": {"compare": "cosine", "points": [list(point) for point in POINTS]}}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"of the training, if weights are missing (default: {STEPS})"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    if not args.weights.is_file():
        train(args.steps, args.weights)
    cut_faces()
    faces, _ = read_faces("train")
    results = export_onnx(
        load_weights(FaceNet(), args.weights),
        faces[:1],
        args.out / "cosface_orl",
        output_names=["description"],
        preprocess=PREPROCESS,
        provenance=PROVENANCE,
        notes=NOTES,
        forms=args.forms,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
