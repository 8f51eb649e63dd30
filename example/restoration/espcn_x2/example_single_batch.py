"""Double the size of an image."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_restoration.task import ImageRestoration

if __name__ == "__main__":
    cli.single(ImageRestoration, ckpt="espcn_x2_dyn.onnx", data_path="data/samples/rocket.jpg", batch_size=1)
