"""Export the pair of networks to ONNX: digit_clip_image and digit_clip_text, each static, dynamic and float16."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from captions import tokenizer

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli
from utils.preprocess.text.tokens import Tokens

with needed(__file__):
    import torch
    from model import LENGTH, PIXELS, SIZE, DigitClip

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PREPROCESS = {"resize_shape": SIZE, "crop_shape": SIZE, "mean": list(PIXELS[0]), "std": list(PIXELS[1])}
PROVENANCE = {
    "source": "example/classification/digit_clip/model.py",
    "weights": "digit_clip.pth, trained by train.py on images that scenes.py composes",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digit_clip.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    words = json.loads(tokenizer())
    network = load_weights(DigitClip(Tokens(tokenizer(), "captions.py").size), args.weights)
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 20, (1, LENGTH // 2), generator=chance)
    note = {"template": ["a {}"], "logit_scale": float(network.scale.detach().exp())}
    parts: dict[str, tuple[Any, ...]] = {
        "image": (network.image, (torch.randn(1, 3, SIZE, SIZE, generator=chance),), ["pixels"], {"image_text": note}),
        "text": (
            network.text,
            (ids, torch.ones_like(ids)),
            ["input_ids", "attention_mask"],
            {"tokenizer": words, "max_length": LENGTH},
        ),
    }
    for name, (part, inputs, names, notes) in parts.items():
        for result in export_onnx(
            part,
            inputs,
            args.out / f"digit_clip_{name}",
            input_names=names,
            output_names=[f"{name}_embeds"],
            dynamic={one: {0: "batch"} | ({1: "tokens"} if name == "text" else {}) for one in names},
            preprocess=PREPROCESS if name == "image" else None,
            provenance=PROVENANCE,
            notes=notes,
            forms=args.forms,
            exporter=args.exporter,
        ):
            print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
