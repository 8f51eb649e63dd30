"""Restore one image."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_restoration.task import ImageRestoration

DATA = "../espcn_x2/data/samples/rocket.jpg"

if __name__ == "__main__":
    cli.single(ImageRestoration, ckpt="edsr_baseline_x2_dyn.onnx", data_path=DATA, batch_size=1)
