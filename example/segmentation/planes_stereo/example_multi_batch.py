"""Find the disparity of every pair of images of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.dense_regression.task import DenseRegression

if __name__ == "__main__":
    cli.multi(DenseRegression, ckpt="planes_stereo_dyn.onnx", data_path="data/samples", batch_size=16)
