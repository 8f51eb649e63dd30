"""Classify one image by a list of texts, with CLIP or SigLIP."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_text.task import ImageText

CKPT, DATA = {name: f"clip_{name}_dyn.onnx" for name in ImageText.models}, "../digit_clip/data"

if __name__ == "__main__":
    cli.single(ImageText, ckpt=CKPT, data_path=f"{DATA}/images/03.png", classes=[f"{DATA}/digits.txt"])
