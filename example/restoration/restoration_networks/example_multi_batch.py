"""Restore every image of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_restoration.task import ImageRestoration

if __name__ == "__main__":
    cli.multi(ImageRestoration, ckpt="edsr_baseline_x2_dyn.onnx", data_path="../espcn_x2/data/samples", batch_size=16)
