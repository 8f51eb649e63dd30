"""Evaluate the pair on held-out combinations: images and captions that find each other, and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_text.task import ImageText

CKPT = {name: f"digit_clip_{name}_dyn.onnx" for name in ImageText.models}

if __name__ == "__main__":
    cli.valid(ImageText, ckpt=CKPT, data_path="data", batch_size=40, lengths=[12])
